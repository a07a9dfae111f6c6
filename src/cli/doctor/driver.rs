//! The driver's library: found, answering, of the version of the kernel module.

use super::check::Check;
use super::finding::Finding;
use super::host::{Host, Seen};
use runmig_lease::files;
use runmig_lease::trust;
use std::time::Duration;

/// A session takes this long where nothing keeps the GPUs initialised.
const SLOW: Duration = Duration::from_secs(1);
const MAX_VERSION: u64 = 4096;

pub const CHECKS: &[Check] = &[
    Check::new(
        "driver.rights",
        "migctl runs as root on the host",
        "sudo migctl doctor",
    ),
    Check::new(
        "driver.library",
        "the NVIDIA driver's library answers",
        "install or load the driver",
    ),
    Check::new(
        "driver.functions",
        "the library has every function that runmig calls",
        "install a newer driver",
    ),
    Check::new(
        "driver.module",
        "the kernel module has the version of the library",
        "reboot",
    ),
    Check::new(
        "driver.session",
        "a session with the driver takes less than a second",
        "nvidia-smi -pm 1",
    ),
    Check::new(
        "driver.gpu",
        "each GPU answers",
        "nvidia-smi --gpu-reset, or reboot",
    ),
];

pub fn findings(host: &Host) -> Vec<Finding> {
    let mut findings = vec![rights()];
    let seen = match &host.seen {
        Err(e) if host.config.is_ok() => {
            findings.push(Finding::failed("driver.library", e));
            findings.extend(Finding::skip_all(
                &CHECKS[2..],
                "the GPU driver does not answer, see driver.library",
            ));
            return findings;
        }
        Err(_) => {
            let why = "the configuration cannot be read";
            findings.extend(Finding::skip_all(&CHECKS[1..], why));
            return findings;
        }
        Ok(seen) => seen,
    };
    let snapshot = &seen.inventory.snapshot;
    findings.push(library(host, seen));
    findings.push(functions(seen));
    findings.push(module(host, &snapshot.driver_version));
    findings.push(session(seen));
    findings.extend({ snapshot.unreadable.iter() }.map(|(_, why)| {
        Finding::fail(
            "driver.gpu",
            why.clone(),
            "nvidia-smi --gpu-reset for that GPU, or reboot",
        )
    }));
    if !snapshot.unreadable.is_empty() {
        return findings;
    }
    findings.push(match snapshot.gpus.len() {
        0 => Finding::fail(
            "driver.gpu",
            "the driver shows no GPU",
            "lspci -d 10de: shows whether the machine has one",
        ),
        n => Finding::ok("driver.gpu", format!("{n} GPUs answer")),
    });
    findings
}

fn library(host: &Host, seen: &Seen) -> Finding {
    let library = host.configured().driver.library;
    let file = seen.library.as_ref().filter(|file| **file != library);
    let file = file.map_or(String::new(), |file| format!(" ({})", file.display()));
    let snapshot = &seen.inventory.snapshot;
    Finding::ok(
        "driver.library",
        format!(
            "{}{file} is of version {}, with {} GPUs",
            library.display(),
            snapshot.driver_version,
            snapshot.gpus.len()
        ),
    )
}

fn functions(seen: &Seen) -> Finding {
    const ID: &str = "driver.functions";
    match &seen.missing {
        Err(why) => Finding::skip(ID, why.as_str()),
        Ok(missing) if missing.is_empty() => {
            Finding::ok(ID, "the library has every function that runmig calls")
        }
        Ok(missing) => Finding::fail(
            ID,
            format!("the library lacks {}", missing.join(", ")),
            "install a driver of release 525 or newer",
        ),
    }
}

fn session(seen: &Seen) -> Finding {
    const ID: &str = "driver.session";
    let took = seen.took;
    match took > SLOW {
        true => Finding::warn(
            ID,
            format!(
                "a session with the driver takes {:.1} s, so each create does too",
                took.as_secs_f64()
            ),
            "nvidia-smi -pm 1",
        ),
        false => Finding::ok(
            ID,
            format!("a session with the driver takes {} ms", took.as_millis()),
        ),
    }
}

fn rights() -> Finding {
    match trust::is_host_root() {
        true => Finding::ok("driver.rights", "this process is root on the host"),
        false => Finding::fail(
            "driver.rights",
            "this process is not root on the host, so it cannot see the ledger or make slices",
            "sudo migctl doctor",
        ),
    }
}

/// After an update of the driver without a reboot, module and library differ.
fn module(host: &Host, library: &str) -> Finding {
    const ID: &str = "driver.module";
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
