//! The processes of dcgm-exporter, on the host or in a pod.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runmig_lease::{files, process};
use std::path::Path;
use std::time::Duration;

const NAME: &str = "dcgm-exporter";
const MAX_STATUS: u64 = 64 * 1024;
/// The age at which dcgm-exporter waits for signals.
const GROWN: Duration = Duration::from_secs(10);

/// The end of a try to tell a process.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// It has the signal.
    Reloads,
    /// The signal could end it: it does not catch it, or has started a moment ago.
    Starts,
    /// It has ended.
    Ended,
    /// The kernel refused.
    Failed(String),
}

/// Returns the processes that run.
pub fn running() -> Vec<i32> {
    process::called(NAME)
}

/// Sends SIGHUP to a process that catches it. Go's runtime catches all signals from its start, and ends the process
/// until the program asks for this one.
pub fn reload(pid: i32) -> Told {
    match process::age(pid) {
        Some(age) if age >= GROWN => {}
        Some(_) => return Told::Starts,
        None => return Told::Ended,
    }
    let status = Path::new("/proc").join(pid.to_string()).join("status");
    match files::read_text(&status, MAX_STATUS).map(|text| catches(&text, Signal::SIGHUP)) {
        Ok(true) => {}
        Ok(false) => return Told::Starts,
        Err(_) => return Told::Ended,
    }
    match kill(Pid::from_raw(pid), Signal::SIGHUP) {
        Ok(()) => Told::Reloads,
        Err(Errno::ESRCH) => Told::Ended,
        Err(e) => Told::Failed(e.desc().to_owned()),
    }
}

/// Returns whether the process with this `status` has a handler for a signal.
fn catches(status: &str, signal: Signal) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (signal as u32 - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_caught_signals() {
        let status = "Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000004001\n";
        assert!(catches(status, Signal::SIGHUP));
        assert!(catches(status, Signal::SIGTERM));
        assert!(!catches(status, Signal::SIGINT));
        assert!(!catches("Name:\tx\n", Signal::SIGHUP));
    }
}
