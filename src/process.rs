//! Which process is which, and whether it lives: `/proc`, read with care.

use crate::model::Process;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Ourselves.
pub fn current() -> Process {
    let pid = std::process::id() as i32;
    of(pid).unwrap_or(Process { pid, start_time: 0 })
}

/// The process that has this number now; a zombie counts as none.
pub fn of(pid: i32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let stat = parse_stat(&stat)?;
    (!stat.is_over() || has_live_thread(pid)).then_some(Process {
        pid,
        start_time: stat.start_time,
    })
}

/// A process whose first thread has ended looks like a zombie, and runs as long as another does.
fn has_live_thread(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        std::fs::read_to_string(thread.path().join("stat"))
            .is_ok_and(|stat| parse_stat(&stat).is_some_and(|stat| !stat.is_over()))
    })
}

/// Whether it started us, or started what started us.
pub fn is_ancestor(process: &Process) -> bool {
    let mut pid = std::process::id() as i32;
    // The first of all has none above it; those outside of a pid namespace show as 0.
    while pid > 1 {
        let Some(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .ok()
            .and_then(|stat| parse_stat(&stat))
        else {
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

pub fn is_alive(process: &Process) -> bool {
    of(process.pid).is_some_and(|now| now.start_time == process.start_time)
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

/// The cgroup paths of a process, each once.
pub fn cgroups(pid: i32) -> Vec<String> {
    let mut paths: Vec<String> = cgroup_lines(pid).unwrap_or_default();
    paths.sort();
    paths.dedup();
    paths
}

fn cgroup_lines(pid: i32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    Some(
        text.lines()
            .filter_map(|line| Some(line.splitn(3, ':').nth(2)?.to_owned()))
            .collect(),
    )
}

/// A live process in one of these cgroups or below. An entry with `/` is a path as `/proc/PID/cgroup`
/// has it; one without is a name that any component of the path may have: before a container's init
/// is known, its cgroup is known by name only, wherever it hangs. One too many found keeps a slice
/// longer, nothing worse.
pub fn in_cgroup(cgroups: &[String]) -> Option<i32> {
    if cgroups.is_empty() {
        return None;
    }
    let within = |path: &str| {
        cgroups.iter().any(|wanted| match wanted.contains('/') {
            true => path
                .strip_prefix(wanted.as_str())
                .is_some_and(|r| r.is_empty() || r.starts_with('/')),
            false => path.split('/').any(|part| part == wanted),
        })
    };
    all().find(|&pid| {
        of(pid).is_some()
            && cgroup_lines(pid)
                .unwrap_or_default()
                .iter()
                .any(|p| within(p))
    })
}

fn all() -> impl Iterator<Item = i32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Who has one of these files or devices open: `(pid, name)`, for the operator who wonders what holds
/// a slice.
pub fn holders_of(files: &[PathBuf], devices: &[(u32, u32)]) -> Vec<(i32, String)> {
    let files: Vec<(u64, u64)> = files
        .iter()
        .filter_map(|f| std::fs::metadata(f).ok())
        .map(|m| (m.dev(), m.ino()))
        .collect();
    let devices: Vec<u64> = devices
        .iter()
        .map(|&(major, minor)| libc::makedev(major, minor))
        .collect();
    if files.is_empty() && devices.is_empty() {
        return Vec::new();
    }
    let is_wanted = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|m| {
            files.contains(&(m.dev(), m.ino()))
                || (m.file_type().is_char_device() && devices.contains(&m.rdev()))
        })
    };
    let holds = |pid: &i32| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd"));
        fds.into_iter()
            .flatten()
            .flatten()
            .any(|fd| is_wanted(&fd.path()))
    };
    all().filter(holds).map(|pid| (pid, name(pid))).collect()
}

pub fn name(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .map(|n| crate::error::printable(n.trim_end()))
        .unwrap_or_default()
}

/// Whose login we come from, as the kernel has kept it since: neither `su` nor `sudo` nor anything that
/// root does in that session changes it. None below a daemon, which nobody logged in to start.
pub fn login() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/self/loginuid").ok()?;
    text.trim().parse().ok().filter(|uid| *uid != u32::MAX)
}

/// Of the machine whose `/proc` lies under this root; the host's own where there is none.
pub fn boot_id(root: &Path) -> crate::error::Result<String> {
    use crate::error::Context;
    const FILE: &str = "proc/sys/kernel/random/boot_id";
    let own = root.join(FILE);
    let file = if own.exists() {
        own
    } else {
        Path::new("/").join(FILE)
    };
    let text = std::fs::read_to_string(&file).context(|| format!("read {}", file.display()))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
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
