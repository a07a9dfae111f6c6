//! The driver's library: found, answering, of the version of the kernel module.

use super::finding::Finding;
use super::host::Host;
use runmig_lease::files;
use runmig_lease::trust;
use std::time::Duration;

/// A session takes this long where nothing keeps the GPUs initialised.
const SLOW: Duration = Duration::from_secs(1);
const MAX_VERSION: u64 = 4096;

pub fn findings(host: &Host) -> Vec<Finding> {
    let mut findings = vec![rights()];
    let library = host.configured().driver.library;
    let seen = match &host.seen {
        Err(e) if host.config.is_ok() => {
            findings.push(Finding::failed("library", e));
            return findings;
        }
        Err(_) => {
            findings.push(Finding::skip("library", "the configuration cannot be read"));
            return findings;
        }
        Ok(seen) => seen,
    };
    let snapshot = &seen.inventory.snapshot;
    findings.push(Finding::ok(
        "library",
        format!(
            "{} is of version {}, with {} GPUs",
            library.display(),
            snapshot.driver_version,
            snapshot.gpus.len()
        ),
    ));
    findings.push(module(host, &snapshot.driver_version));
    findings.push(match seen.took {
        took if took > SLOW => Finding::warn(
            "session",
            format!(
                "a session with the driver takes {:.1} s, so each create does too",
                took.as_secs_f64()
            ),
            "nvidia-smi -pm 1",
        ),
        took => Finding::ok(
            "session",
            format!("a session with the driver takes {} ms", took.as_millis()),
        ),
    });
    findings.extend({ snapshot.unreadable.iter() }.map(|(_, why)| {
        Finding::fail(
            "gpu",
            why.clone(),
            "nvidia-smi --gpu-reset for that GPU, or reboot",
        )
    }));
    if snapshot.gpus.is_empty() && snapshot.unreadable.is_empty() {
        findings.push(Finding::fail(
            "gpu",
            "the driver shows no GPU",
            "lspci -d 10de: shows whether the machine has one",
        ));
    }
    findings
}

fn rights() -> Finding {
    match trust::is_host_root() {
        true => Finding::ok("rights", "this process is root on the host"),
        false => Finding::fail(
            "rights",
            "this process is not root on the host, so it cannot see the ledger or make slices",
            "sudo migctl doctor",
        ),
    }
}

/// After an update of the driver without a reboot, module and library differ.
fn module(host: &Host, library: &str) -> Finding {
    const ID: &str = "module";
    let file = host.driver_root().join("proc/driver/nvidia/version");
    let Ok(text) = files::read_text(&file, MAX_VERSION) else {
        return Finding::warn(
            ID,
            format!("cannot read {}", file.display()),
            "modprobe nvidia",
        );
    };
    let is_version = |word: &&str| {
        word.split('.').count() > 1 && word.split('.').all(|n| n.parse::<u32>().is_ok())
    };
    match text.split_whitespace().find(is_version) {
        Some(module) if module == library => {
            Finding::ok(ID, format!("the kernel module is of version {module} too"))
        }
        Some(module) => Finding::fail(
            ID,
            format!(
                "the kernel module is of version {module}, and the library of version {library}"
            ),
            "reboot, so that the new module is loaded",
        ),
        None => Finding::warn(
            ID,
            format!("{} names no version", file.display()),
            "modprobe nvidia",
        ),
    }
}
