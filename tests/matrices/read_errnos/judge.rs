//! The answers that a release may give to a read that fails.

use crate::read_errnos::before::Before;
use crate::read_errnos::paths::{Read, path_of};
use testkit::faults::strace::Point;
use testkit::prelude::*;

/// Phrases that tell the loss, instead of the file of `/proc` that could not be read.
const LEARNT: [&str; 5] = [
    "runmig cannot see from here whether it lives",
    "root on the host",
    "this process's namespaces",
    "/proc/self cannot be read",
    "its cgroup cannot be read",
];

/// The beginning of the name of a file that becomes config.json; the rest is of the process.
pub const TEMPORARY: &str = ".config.json.runmig-";

impl Before {
    /// Whether a text says which file it is about: by its name, its lease or process, or by its loss.
    fn names(&self, text: &str, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        let says = |words: &str| text.contains(words);
        match parts[..] {
            ["", "proc", pid, ..] if says(&format!("process {pid}")) => true,
            ["", "proc", ..] => LEARNT.iter().any(|words| says(words)),
            [.., name] if name.starts_with(TEMPORARY) => says("/config.json"),
            [.., name] if name.starts_with(".ledger.json") => says("/ledger.json"),
            [.., name] if name.starts_with("state-of-") => says("standard input"),
            [.., name] => says(name),
            [] => false,
        }
    }

    /// The read of a call; none where the loader or the simulated driver reads for itself.
    pub fn read_of(&self, point: &Point) -> Option<Read> {
        let path = path_of(&point.call, &point.shown)?;
        let machine = self.world.machine();
        let is_ours = match Path::new(&path).strip_prefix(&machine) {
            Ok(rest) => rest.starts_with("proc/sys") || rest.starts_with("lib"),
            Err(_) => true,
        };
        // The driver looks for holders; runmig's own look has a test in crates/lease/src/process/holders.rs.
        let parts: Vec<&str> = path.split('/').collect();
        let of_loader = ["/lib", "/usr/lib", "/etc/ld.so"];
        if !is_ours || parts.contains(&"fd") || of_loader.iter().any(|l| path.starts_with(l)) {
            return None;
        }
        let pid = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let ours = [self.peer_pid, self.gone_pid].map(|pid| pid.to_string());
        let passes = |part: &&str| path.starts_with("/proc/") && !ours.iter().any(|o| o == part);
        let normal: Vec<&str> = { parts.iter() }
            .map(|part| match part {
                part if pid(part) && passes(part) => "PID",
                part if part.starts_with(TEMPORARY) => TEMPORARY,
                part => part,
            })
            .collect();
        Some((point.call.clone(), normal.join("/")))
    }

    /// Whether an answer is one that no kernel gives here: a living process is gone, the machine has no
    /// boot id of its own, or a record does not exist. The ledger is on a tmpfs, which never says so of
    /// a file that exists.
    pub fn is_lie(&self, path: &str, errno: i32) -> bool {
        let of_peer = format!("/proc/{}", self.peer_pid);
        let no_process = matches!(errno, libc::ENOENT | libc::ESRCH);
        let no_boot_id = path.ends_with("/boot_id") && errno == libc::ENOENT;
        let of_ledger = Path::new(path) == self.world.state().join("ledger.json");
        (of_ledger && errno == libc::ENOENT)
            || no_boot_id
            || (no_process && Path::new(path).starts_with(of_peer))
    }

    pub fn judge(&self, operation: &str, path: &str, errno: i32, out: &Said) -> Result<(), String> {
        self.peer_has_its_slice()?;
        let log = fs::read_to_string(self.world.state().join("runmig.log")).unwrap_or_default();
        let text = format!("{}{}{log}", out.stdout, out.stderr);
        // An engine's delete says what its low-level runtime says, and may leave the rest to gc. A file
        // that is not there is no failure.
        let may_be_silent = operation == "delete" || errno == libc::ENOENT;
        if self.nothing_is_left().is_ok() {
            return Ok(());
        }
        if !may_be_silent && !self.names(&text, path) {
            return Err(format!("does not name what failed: {text}"));
        }
        let collected = testkit::said(&mut self.world.migctl(&["gc"]));
        self.peer_has_its_slice()?;
        let in_bundles = Path::new(path).starts_with(self.world.path("bundles"));
        let e = match self.nothing_is_left() {
            Ok(()) => return Ok(()),
            // A bundle that is said to be gone is left alone.
            Err(_) if is_absent(errno) && in_bundles => return Ok(()),
            Err(e) => e,
        };
        let after = format!("and gc afterwards {collected:?}");
        Err(format!("{e}; it said {text}, {after}"))
    }
}

fn is_absent(errno: i32) -> bool {
    matches!(errno, libc::ENOENT | libc::ENOTDIR)
}
