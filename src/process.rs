//! Which process is which, and whether it lives: `/proc`, read with care.

use crate::model::Process;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const PROC: &str = "/proc";

/// Ourselves.
pub fn current() -> Process {
    let pid = std::process::id() as i32;
    of(pid).unwrap_or(Process { pid, start_time: 0 })
}

/// The process that has this number now; a zombie counts as none. None also where that cannot be read:
/// whether a process lives is `is_alive`.
pub fn of(pid: i32) -> Option<Process> {
    look(Path::new(PROC), pid).ok().flatten()
}

fn look(proc: &Path, pid: i32) -> io::Result<Option<Process>> {
    let dir = proc.join(pid.to_string());
    let Some(stat) = read_stat(&dir)? else {
        return Ok(None);
    };
    let lives = !stat.is_over() || has_live_thread(&dir)?;
    Ok(lives.then_some(Process {
        pid,
        start_time: stat.start_time,
    }))
}

/// A process whose first thread has ended looks like a zombie, and runs as long as another does.
fn has_live_thread(dir: &Path) -> io::Result<bool> {
    let threads = if_there(std::fs::read_dir(dir.join("task")))?;
    for thread in threads.into_iter().flatten() {
        let Some(thread) = if_there(thread)? else {
            break;
        };
        if read_stat(&thread.path())?.is_some_and(|stat| !stat.is_over()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// None where there is no such process any more, and no other failure says that.
fn if_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Names of processes and cgroups may be any bytes.
fn read_text(file: &Path) -> io::Result<Option<String>> {
    let bytes = if_there(std::fs::read(file))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn read_stat(dir: &Path) -> io::Result<Option<Stat>> {
    let Some(text) = read_text(&dir.join("stat"))? else {
        return Ok(None);
    };
    let stat = parse_stat(&text).ok_or_else(|| io::Error::other("stat is not what it was"))?;
    Ok(Some(stat))
}

/// Whether it started us, or started what started us.
pub fn is_ancestor(process: &Process) -> bool {
    let mut pid = std::process::id() as i32;
    // The first of all has none above it; those outside of a pid namespace show as 0.
    while pid > 1 {
        let dir = Path::new(PROC).join(pid.to_string());
        let Some(stat) = read_stat(&dir).ok().flatten() else {
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

/// What cannot be read counts as alive.
pub fn is_alive(process: &Process) -> bool {
    is_alive_in(Path::new(PROC), process)
}

fn is_alive_in(proc: &Path, process: &Process) -> bool {
    look(proc, process.pid).map_or(true, |now| now == Some(*process))
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
    let mut paths = cgroup_lines(Path::new(PROC), pid).unwrap_or_default();
    paths.sort();
    paths.dedup();
    paths
}

fn cgroup_lines(proc: &Path, pid: i32) -> io::Result<Vec<String>> {
    let text = read_text(&proc.join(pid.to_string()).join("cgroup"))?.unwrap_or_default();
    let path = |line: &str| Some(line.splitn(3, ':').nth(2)?.to_owned());
    Ok(text.lines().filter_map(path).collect())
}

/// A live process in one of these cgroups or below. An entry with `/` is a path as `/proc/PID/cgroup`
/// has it; one without is a name that any component of the path may have: before a container's init
/// is known, its cgroup is known by name only, wherever it hangs. One too many found keeps a slice
/// longer, nothing worse.
pub fn in_cgroup(cgroups: &[String]) -> io::Result<Option<i32>> {
    in_cgroup_in(Path::new(PROC), cgroups)
}

fn in_cgroup_in(proc: &Path, cgroups: &[String]) -> io::Result<Option<i32>> {
    if cgroups.is_empty() {
        return Ok(None);
    }
    let within = |path: &String| {
        cgroups.iter().any(|wanted| match wanted.contains('/') {
            true => path
                .strip_prefix(wanted.as_str())
                .is_some_and(|r| r.is_empty() || r.starts_with('/')),
            false => path.split('/').any(|part| part == wanted),
        })
    };
    for pid in all(proc)? {
        if cgroup_lines(proc, pid)?.iter().any(within) && look(proc, pid)?.is_some() {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

fn all(proc: &Path) -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir(proc)? {
        pids.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|n| n.parse::<i32>().ok()),
        );
    }
    Ok(pids)
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
    let all = all(Path::new(PROC)).unwrap_or_default();
    { all.into_iter() }
        .filter(holds)
        .map(|pid| (pid, name(pid)))
        .collect()
}

pub fn name(pid: i32) -> String {
    let name = read_text(Path::new(&format!("{PROC}/{pid}/comm")));
    let name = name.ok().flatten().unwrap_or_default();
    crate::error::printable(name.trim_end())
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

    /// Only that it is not there says that it is dead.
    #[test]
    fn what_cannot_be_read_counts_as_alive() {
        let dir = tempfile::tempdir().unwrap();
        let (proc, us) = (dir.path(), current());
        let ours = proc.join(us.pid.to_string());
        let cgroups = ["/a".to_owned()];
        assert!(!is_alive_in(proc, &us));
        assert!(matches!(in_cgroup_in(proc, &cgroups), Ok(None)));
        assert!(in_cgroup_in(&proc.join("none"), &cgroups).is_err());
        // A folder cannot be read as a file.
        for file in ["cgroup", "stat"] {
            std::fs::create_dir_all(ours.join(file)).unwrap();
        }
        assert!(is_alive_in(proc, &us));
        assert!(in_cgroup_in(proc, &cgroups).is_err());
        std::fs::remove_dir(ours.join("cgroup")).unwrap();
        assert!(matches!(in_cgroup_in(proc, &cgroups), Ok(None)));
        std::fs::write(ours.join("cgroup"), "0::/a/b\n").unwrap();
        assert!(in_cgroup_in(proc, &cgroups).is_err());
        std::fs::remove_dir(ours.join("stat")).unwrap();
        std::fs::write(ours.join("stat"), "nothing known").unwrap();
        assert!(is_alive_in(proc, &us));
        let stat = std::fs::read(format!("/proc/{}/stat", us.pid)).unwrap();
        std::fs::write(ours.join("stat"), stat).unwrap();
        assert!(matches!(in_cgroup_in(proc, &cgroups), Ok(Some(pid)) if pid == us.pid));
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
