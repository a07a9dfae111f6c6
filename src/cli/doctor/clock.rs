//! The clock and the boot id, by which records are dated.

use super::check::Check;
use super::command::{self, Surroundings};
use super::finding::Finding;
use super::host::Host;
use crate::cli::configure;
use runmig_lease::model::Timestamp;
use runmig_lease::process;
use std::path::Path;
use std::time::SystemTime;

pub const CHECKS: &[Check] = &[
    Check::new("clock.boot", "the boot id is readable", "mount /proc"),
    Check::new(
        "clock.time",
        "the clock is not earlier than the ledger",
        "timedatectl set-ntp true",
    ),
    Check::new(
        "clock.synchronised",
        "the clock is synchronised",
        "timedatectl set-ntp true",
    ),
];

pub fn findings(host: &Host) -> Vec<Finding> {
    vec![boot(host), ledger(host), synchronised()]
}

fn boot(host: &Host) -> Finding {
    match process::boot_id(&host.driver_root()) {
        Ok(_) => Finding::ok("clock.boot", "the boot id is readable"),
        Err(e) => Finding::failed("clock.boot", &e),
    }
}

/// A clock that was set back makes new leases older than those on record.
fn ledger(host: &Host) -> Finding {
    let seen = match host.seen() {
        Ok(seen) => seen,
        Err(why) => return Finding::skip("clock.time", why),
    };
    let now = Timestamp::seconds(SystemTime::now());
    let latest = seen
        .inventory
        .leases
        .iter()
        .map(|held| &held.lease.created)
        .max();
    match latest.filter(|latest| **latest > now) {
        Some(latest) => Finding::warn(
            "clock.time",
            format!("the clock says {now}, and a lease is of {latest}, so the clock was set back"),
            "set the clock: timedatectl set-ntp true",
        ),
        None => Finding::ok("clock.time", "the clock is not earlier than the ledger"),
    }
}

fn synchronised() -> Finding {
    const ID: &str = "clock.synchronised";
    let ask = ["show", "--value", "--property", "NTPSynchronized"];
    let said = match (
        Path::new("/run/systemd/system").is_dir(),
        configure::search("timedatectl"),
    ) {
        (true, Some(timedatectl)) => command::output(&timedatectl, &ask, &Surroundings::Only(&[])),
        _ => return Finding::skip(ID, "this machine does not run systemd, which would know"),
    };
    match said.as_deref() {
        Ok("yes") => Finding::ok(ID, "the clock is synchronised"),
        Ok(_) => Finding::warn(
            ID,
            "the clock is not synchronised, so the times of leases may be wrong",
            "timedatectl set-ntp true",
        ),
        Err(e) => Finding::warned(ID, e),
    }
}
