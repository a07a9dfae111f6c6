//! The checks of the node itself: GPUs, ledger, the hook and the driver's files.

use super::{Finding, fail, ok, warn};
use crate::files;
use crate::layout::Published;
use crate::ledger;
use crate::options::{Options, hook};
use crate::room::Room;
use runmig_lease::config::{Config, DriverFiles};
use runmig_lease::error::{Context, Error};
use runmig_lease::store::Store;
use runmig_lease::trust;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) fn findings(options: &Options, config: &Config) -> Vec<Finding> {
    let mut findings = vec![root()];
    findings.extend(gpus(options, config));
    findings.push(driver(config));
    findings.extend(damaged(config));
    findings.push(match hook(options) {
        Ok(hook) => ok(format!("hook {} belongs to root alone", hook.display())),
        Err(e) => fail(&e),
    });
    findings.push(driver_files(config));
    findings
}

fn root() -> Finding {
    match trust::is_host_root() {
        true => ok("this process is root on the host"),
        false => fail(
            &Error::new("cannot make slices: this process is not root on the host")
                .hint("run runmig-dra as root, outside of any user namespace"),
        ),
    }
}

fn gpus(options: &Options, config: &Config) -> Vec<Finding> {
    let room = Room::new(Arc::new(config.clone()), &options.node);
    let mut room = room.continuing(Published::default());
    let slices = match room.look() {
        Ok(slices) => slices.unwrap_or_default(),
        Err(e) => return vec![fail(&e)],
    };
    let mut findings: Vec<Finding> = { room.left_out().iter() }
        .map(|left_out| {
            let line = format!("cannot publish {}: {}", left_out.what, left_out.reason);
            warn(&Error::new(line).hint("see docs/dra.md, which lists the GPUs that are left out"))
        })
        .collect();
    let devices = slices
        .iter()
        .filter_map(|slice| slice.spec.devices.as_ref());
    findings.push(match devices.map(Vec::len).sum::<usize>() {
        0 => fail(
            &Error::new("cannot publish GPUs: no GPU of this node is in MIG mode and published")
                .hint(
                    "switch MIG mode on with nvidia-smi -mig 1, or see kubernetes.gpus and policy",
                ),
        ),
        n => ok(format!(
            "this node has {n} devices in {} ResourceSlices",
            slices.len()
        )),
    });
    findings
}

/// Names the process that publishes. Without a ledger there is none.
fn driver(config: &Config) -> Finding {
    let look = || match Store::existing(&config.state_dir, config.lock_timeout)? {
        Some(store) => store.try_lock_driver(),
        None => Ok(Err(String::new())),
    };
    match look() {
        Err(e) => fail(&e),
        Ok(Ok(_)) => ok("no other runmig-dra publishes for this node"),
        Ok(Err(by)) if by.is_empty() => ok("this node has no ledger yet"),
        Ok(Err(by)) => ok(format!("runmig-dra publishes for this node, {by}")),
    }
}

/// Names the records that cannot be read. Their names still reserve their places. A ledger that cannot be read at all is
/// a finding already.
fn damaged(config: &Config) -> Vec<Finding> {
    let records = ledger::damaged(config).unwrap_or_default().into_iter();
    let line = |(file, why): (PathBuf, Error)| {
        let line = format!("cannot read record {}", file.display());
        warn(
            &Error::new(line)
                .hint("release it with migctl release")
                .caused_by(why),
        )
    };
    records.map(line).collect()
}

/// Looks for the files as Prepare does.
fn driver_files(config: &Config) -> Finding {
    let choice = config.driver_files;
    let edits = files::edits(choice).context(|| "find the driver's files");
    match (choice, edits) {
        (_, Err(e)) => fail(&e),
        (DriverFiles::None, _) => {
            ok("the images have the driver's files (driver_files = \"none\")")
        }
        (DriverFiles::Auto, Ok(edits)) if edits.mounts.is_empty() => warn(
            &Error::new("cannot find the driver's files: no CDI specification of nvidia.com/gpu has any")
                .hint("run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, or set driver_files = \"none\" if the images have them"),
        ),
        (_, Ok(_)) => ok("the driver's files are there"),
    }
}
