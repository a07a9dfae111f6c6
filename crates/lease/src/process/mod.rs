//! Which process is which, and whether it lives: `/proc`, read with care.

mod cgroup;
mod holders;
mod look;
mod mounts;
mod reads;
pub mod signals;
mod view;

pub use cgroup::{OwnCgroup, cgroups, in_cgroup, own_cgroup};
pub(crate) use holders::{Holders, holders_of};
pub use mounts::answers;
pub use reads::{Host, Reads, is_gone};
pub(crate) use view::Sight;
pub use view::View;

use crate::files;
use crate::model::Process;
use std::io;
use std::path::{Path, PathBuf};

const PROC: &str = "/proc";
/// More than a file of one number or identifier has.
const MAX_LINE: u64 = 256;

/// Returns this process.
pub fn current() -> Process {
    let pid = std::process::id() as i32;
    of(pid).unwrap_or(Process { pid, start_time: 0 })
}

/// The process that has this number now; a zombie counts as none. None also where that cannot be read:
/// whether a process lives is `is_alive`.
pub fn of(pid: i32) -> Option<Process> {
    look(&Host, pid).ok().flatten()
}

fn dir(pid: i32) -> PathBuf {
    Path::new(PROC).join(pid.to_string())
}

fn look(reads: &dyn Reads, pid: i32) -> io::Result<Option<Process>> {
    let Some(stat) = read_stat(reads, &dir(pid))? else {
        return Ok(None);
    };
    let lives = !stat.is_over() || has_live_thread(reads, &dir(pid))?;
    Ok(lives.then_some(Process {
        pid,
        start_time: stat.start_time,
    }))
}

/// A process whose first thread has ended looks like a zombie, and runs as long as another does.
fn has_live_thread(reads: &dyn Reads, dir: &Path) -> io::Result<bool> {
    let tasks = dir.join("task");
    for thread in if_there(reads.names(&tasks))?.unwrap_or_default() {
        if read_stat(reads, &tasks.join(thread))?.is_some_and(|stat| !stat.is_over()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// None where there is no such process any more, and no other failure says that.
fn if_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(e) if is_gone(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Names of processes and cgroups may be any bytes.
fn read_text(reads: &dyn Reads, file: &Path) -> io::Result<Option<String>> {
    let bytes = if_there(reads.file(file))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn read_stat(reads: &dyn Reads, dir: &Path) -> io::Result<Option<Stat>> {
    let Some(text) = read_text(reads, &dir.join("stat"))? else {
        return Ok(None);
    };
    let stat = parse_stat(&text).ok_or_else(|| io::Error::other("stat is not what it was"))?;
    Ok(Some(stat))
}

/// Whether it started us, or started what started us.
pub(crate) fn is_ancestor(process: &Process) -> bool {
    let mut pid = std::process::id() as i32;
    // The first of all has none above it; those outside of a pid namespace show as 0.
    while pid > 1 {
        let Some(stat) = read_stat(&Host, &dir(pid)).ok().flatten() else {
            return false;
        };
        if (Process {
            pid,
            start_time: stat.start_time,
        }) == *process
        {
            return true;
        }
        pid = stat.parent;
    }
    false
}

/// Tells whether a process lives. An unreadable one counts as alive.
pub fn is_alive(process: &Process) -> bool {
    is_alive_by(&Host, process)
}

pub(crate) fn is_alive_by(reads: &dyn Reads, process: &Process) -> bool {
    look(reads, process.pid).map_or(true, |now| now == Some(*process))
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: i32,
    start_time: u64,
}

impl Stat {
    fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Fields 3, 4 and 22. The name in parentheses may hold anything, parentheses and spaces too.
fn parse_stat(stat: &str) -> Option<Stat> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    Some(Stat {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        start_time: fields.nth(17)?.parse().ok()?,
    })
}

fn all(reads: &dyn Reads) -> io::Result<Vec<i32>> {
    let names = reads.names(Path::new(PROC))?;
    let pid = |name: std::ffi::OsString| name.to_str()?.parse().ok();
    Ok(names.into_iter().filter_map(pid).collect())
}

pub(crate) fn name(pid: i32) -> String {
    let name = read_text(&Host, &dir(pid).join("comm"));
    let name = name.ok().flatten().unwrap_or_default();
    crate::error::printable(name.trim_end())
}

/// Returns the login that we come from, as the kernel has kept it since: neither `su` nor `sudo`
/// nor anything that root does in that session changes it. There is none below a daemon, which
/// nobody logged in to start.
pub fn login() -> Option<u32> {
    let text = files::read_text(Path::new("/proc/self/loginuid"), MAX_LINE).ok()?;
    text.trim().parse().ok().filter(|uid| *uid != u32::MAX)
}

/// Returns the boot id of the machine with its `/proc` under this root; the host's own if there is
/// none.
pub fn boot_id(root: &Path) -> crate::error::Result<String> {
    use crate::error::Context;
    const FILE: &str = "proc/sys/kernel/random/boot_id";
    let read = |file: &Path| files::read_text(file, MAX_LINE);
    let own = root.join(FILE);
    // Only an absent file says that it is the host's: another boot's leases lose their instances.
    let (file, text) = match read(&own) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let file = Path::new("/").join(FILE);
            let text = read(&file);
            (file, text)
        }
        text => (own, text),
    };
    let text = text.context(|| format!("read {}", file.display()))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) R) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 6 7";
        let expected = Stat {
            state: 'S',
            parent: 1,
            start_time: 12345,
        };
        assert_eq!(parse_stat(stat), Some(expected));
        assert_eq!(parse_stat("7 (x"), None);
    }

    #[test]
    fn we_live_and_a_later_process_of_our_number_is_another() {
        let us = current();
        assert!(is_alive(&us));
        assert!(is_ancestor(&us));
        assert!(!is_alive(&Process {
            start_time: us.start_time + 1,
            ..us
        }));
    }

    #[test]
    fn a_process_may_be_called_by_any_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join(OsStr::from_bytes(b"\xff"));
        std::os::unix::fs::symlink("/bin/cat", &odd).unwrap();
        let mut child = Command::new(odd).stdin(Stdio::piped()).spawn().unwrap();
        let process = of(child.id() as i32).unwrap();
        assert!(is_alive(&process));
        assert_eq!(name(process.pid), "\u{fffd}");
        let _ = child.kill();
        child.wait().unwrap();
        assert!(!is_alive(&process));
    }

    /// A folder in the place of `/proc`.
    struct Below(PathBuf);

    impl Below {
        fn at(&self, path: &Path) -> PathBuf {
            self.0.join(path.strip_prefix(PROC).unwrap())
        }
    }

    impl Reads for Below {
        fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
            Host.file(&self.at(path))
        }
        fn names(&self, dir: &Path) -> io::Result<Vec<std::ffi::OsString>> {
            Host.names(&self.at(dir))
        }
        fn link(&self, path: &Path) -> io::Result<PathBuf> {
            Host.link(&self.at(path))
        }
        fn identity(&self, path: &Path) -> io::Result<(u64, u64)> {
            Host.identity(&self.at(path))
        }
        fn answers(&self, _: &[PathBuf]) -> bool {
            true
        }
    }

    /// Only that it is not there says that it is dead.
    #[test]
    fn what_cannot_be_read_counts_as_alive() {
        let dir = tempfile::tempdir().unwrap();
        let (proc, us) = (Below(dir.path().to_owned()), current());
        let ours = dir.path().join(us.pid.to_string());
        let cgroups = ["/a".to_owned()];
        assert!(!is_alive_by(&proc, &us));
        assert!(matches!(in_cgroup(&proc, &cgroups), Ok(None)));
        assert!(in_cgroup(&Below(dir.path().join("none")), &cgroups).is_err());
        // A folder cannot be read as a file.
        for file in ["cgroup", "stat"] {
            std::fs::create_dir_all(ours.join(file)).unwrap();
        }
        assert!(is_alive_by(&proc, &us));
        assert!(in_cgroup(&proc, &cgroups).is_err());
        std::fs::remove_dir(ours.join("cgroup")).unwrap();
        assert!(matches!(in_cgroup(&proc, &cgroups), Ok(None)));
        std::fs::write(ours.join("cgroup"), "0::/a/b\n").unwrap();
        assert!(in_cgroup(&proc, &cgroups).is_err());
        std::fs::remove_dir(ours.join("stat")).unwrap();
        std::fs::write(ours.join("stat"), "nothing known").unwrap();
        assert!(is_alive_by(&proc, &us));
        let stat = std::fs::read(format!("/proc/{}/stat", us.pid)).unwrap();
        std::fs::write(ours.join("stat"), stat).unwrap();
        assert!(matches!(in_cgroup(&proc, &cgroups), Ok(Some(pid)) if pid == us.pid));
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        // It has ended when the kernel says so, and is not yet waited for.
        while std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|s| parse_stat(&s).is_some_and(|stat| !stat.is_over()))
        {
            std::thread::yield_now();
        }
        assert_eq!(of(pid), None);
        child.wait().unwrap();
    }
}
