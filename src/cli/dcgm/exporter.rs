//! The processes of dcgm-exporter, on the host or in a pod.

use crate::cli::processes;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runmig_lease::files;
use std::path::Path;

const NAME: &str = "dcgm-exporter";
const MAX_STATUS: u64 = 64 * 1024;

/// A process of dcgm-exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exporter {
    pub pid: i32,
}

/// The end of a try to tell a process.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// It has the signal.
    Reloads,
    /// The signal would end it: it does not catch it yet.
    Starts,
    /// It has ended.
    Ended,
    /// The kernel refused.
    Failed(String),
}

/// Returns the processes that run.
pub fn running() -> Vec<Exporter> {
    let all = processes::commands().into_iter();
    all.filter(|(_, name)| name == NAME)
        .map(|(pid, _)| Exporter { pid })
        .collect()
}

impl Exporter {
    /// Sends SIGHUP to a process that catches it. A process that does not would end.
    pub fn reload(&self) -> Told {
        let status = Path::new("/proc").join(self.pid.to_string()).join("status");
        match files::read_text(&status, MAX_STATUS).map(|text| catches(&text, Signal::SIGHUP)) {
            Ok(true) => {}
            Ok(false) => return Told::Starts,
            Err(_) => return Told::Ended,
        }
        match kill(Pid::from_raw(self.pid), Signal::SIGHUP) {
            Ok(()) => Told::Reloads,
            Err(Errno::ESRCH) => Told::Ended,
            Err(e) => Told::Failed(e.desc().to_owned()),
        }
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
