//! Identifies processes and tells whether they live, by careful reads of `/proc`; and this process's dispositions of signals.

mod cgroup;
mod hierarchies;
mod holders;
mod in_child;
mod namespaces;
pub(crate) mod program;

pub use cgroup::{OwnCgroup, cgroups, in_cgroup, own_cgroup};
pub(crate) use cgroup::{is_in_cgroup, systemd_cgroup, unified_cgroup};
pub(crate) use hierarchies::hierarchies;
pub use hierarchies::{answers, unanswered};
pub(crate) use holders::{Holders, holders_of};
pub use in_child::renew_patience;
pub(crate) use namespaces::Sight;
pub use namespaces::View;
pub use program::{output, run_apart, wait_until};

use crate::effect::{self, Kind};
use crate::files::{self, Links};
use crate::model::{BootId, Process};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::ffi::OsString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, io};

const PROC: &str = "/proc";
const MOUNTINFO: &str = "/proc/self/mountinfo";
/// The limit for a file with one number or identifier, in bytes. No such file is this long.
const MAX_LINE: u64 = 256;

/// Returns this process.
pub fn current() -> Process {
    let pid = std::process::id() as i32;
    of(pid).unwrap_or(Process { pid, start_time: 0 })
}

/// Returns the process that has this number now. Returns none for a zombie, and none if `/proc` cannot be
/// read. To learn whether a process lives, use `is_alive`.
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

/// Returns whether a process has a live thread. A process whose first thread has ended looks like a zombie,
/// but runs as long as another thread does.
fn has_live_thread(reads: &dyn Reads, dir: &Path) -> io::Result<bool> {
    let tasks = dir.join("task");
    for thread in if_there(reads.names(&tasks))?.unwrap_or_default() {
        if read_stat(reads, &tasks.join(thread))?.is_some_and(|stat| !stat.is_over()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns none if the failed read says that the process does not exist. Every other failure stays an
/// error.
fn if_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(e) if is_gone(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Reads a file as text. Names of processes and cgroups may be any bytes.
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

/// Returns whether the process started this one, directly or through others.
pub(crate) fn is_ancestor(process: &Process) -> bool {
    let mut pid = std::process::id() as i32;
    // The first process has no parent. A parent outside the pid namespace shows as 0.
    while pid > 1 {
        let Some(stat) = read_stat(&Host, &dir(pid)).ok().flatten() else {
            return false;
        };
        if (pid, stat.start_time) == (process.pid, process.start_time) {
            return true;
        }
        pid = stat.parent;
    }
    false
}

/// Returns the parent of a process; none if it cannot be read.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let stat = read_stat(&Host, &dir(pid)).ok().flatten();
    stat.map(|stat| stat.parent)
}

/// Returns whether no process with this number lives. An unreadable one counts as alive.
pub(crate) fn is_over(reads: &dyn Reads, pid: i32) -> bool {
    look(reads, pid).is_ok_and(|now| now.is_none())
}

/// Returns whether a process lives. An unreadable one counts as alive.
pub fn is_alive(process: &Process) -> bool {
    is_alive_by(&Host, process)
}

/// Kills a process, unless it has ended. The descriptor names it even if its number is used again.
pub(crate) fn kill(process: &Process) -> io::Result<()> {
    match PidFd::open(process.pid) {
        Ok(found) if is_alive(process) => found.kill(),
        Err(e) if e.raw_os_error() != Some(libc::ESRCH) => Err(e),
        _ => Ok(()),
    }
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

/// Parses fields 3, 4 and 22. The name in parentheses may contain anything, also parentheses and spaces.
fn parse_stat(stat: &str) -> Option<Stat> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    Some(Stat {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        start_time: fields.nth(17)?.parse().ok()?,
    })
}

/// Returns the open file descriptors of this process, one of which was that of the list itself.
pub fn descriptors() -> io::Result<Vec<i32>> {
    numbers(&Host, Path::new("/proc/self/fd"))
}

fn all(reads: &dyn Reads) -> io::Result<Vec<i32>> {
    numbers(reads, Path::new(PROC))
}

/// Returns the names in a folder that are numbers.
fn numbers(reads: &dyn Reads, dir: &Path) -> io::Result<Vec<i32>> {
    let number = |name: OsString| name.to_str()?.parse().ok();
    Ok(reads.names(dir)?.into_iter().filter_map(number).collect())
}

/// Returns the processes of this machine with their command names. That of one that has just ended is empty.
pub fn commands() -> Vec<(i32, String)> {
    let all = all(&Host).unwrap_or_default().into_iter();
    all.map(|pid| (pid, name(pid))).collect()
}

/// Returns the processes with this command name.
pub fn called(command: &str) -> Vec<i32> {
    let mut all = all(&Host).unwrap_or_default();
    all.retain(|pid| name(*pid) == command);
    all
}

pub(crate) fn name(pid: i32) -> String {
    let name = read_text(&Host, &dir(pid).join("comm"));
    let name = name.ok().flatten().unwrap_or_default();
    crate::error::printable(name.trim_end())
}

/// Returns the time since a process began. None where it has ended, or where `/proc` cannot be read.
pub fn age(pid: i32) -> Option<Duration> {
    let uptime = files::read_text(Path::new("/proc/uptime"), MAX_LINE).ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    // The kernel counts in hundredths of a second for programs, whatever its own clock is.
    let began = Duration::from_millis(of(pid)?.start_time.checked_mul(10)?);
    Some(
        Duration::try_from_secs_f64(uptime)
            .ok()?
            .saturating_sub(began),
    )
}

/// Returns the login that started this process, as the kernel has kept it. Neither `su` nor `sudo` nor root
/// changes it in that session. A process below a daemon has none, because no login started the daemon.
pub fn login() -> Option<u32> {
    let text = files::read_text(Path::new("/proc/self/loginuid"), MAX_LINE).ok()?;
    text.trim().parse().ok().filter(|uid| *uid != u32::MAX)
}

/// Returns the boot id of the machine with its `/proc` under this root. Without such a file it returns the
/// host's own boot id.
pub fn boot_id(root: &Path) -> crate::error::Result<BootId> {
    use crate::error::Context;
    const FILE: &str = "proc/sys/kernel/random/boot_id";
    let read = |file: &Path| files::read_text(file, MAX_LINE);
    let own = root.join(FILE);
    // Only an absent file means the host's boot id: leases of another boot lose their instances.
    let (file, text) = match read(&own) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let file = Path::new("/").join(FILE);
            let text = read(&file);
            (file, text)
        }
        text => (own, text),
    };
    let what = || format!("read {}", file.display());
    match text.context(what)?.trim() {
        // Every record would count as one of another boot.
        "" => Err("it is empty").context(what),
        text => Ok(BootId::new(text)),
    }
}

/// A process, whatever becomes of its number.
#[derive(Debug)]
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has this number now.
    ///
    /// # Errors
    /// No process has it (ESRCH), or the kernel is older than 5.3.
    pub(crate) fn open(pid: i32) -> io::Result<PidFd> {
        // SAFETY: the call takes numbers alone.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match i32::try_from(fd) {
            // SAFETY: the descriptor was just opened, and nothing else owns it.
            Ok(fd @ 0..) => Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends SIGKILL. A process that has ended is no error.
    pub(crate) fn kill(&self) -> io::Result<()> {
        effect::effect(Kind::Kill, "")?;
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and the kernel takes a null pointer for no information.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                libc::SIGKILL,
                no_info,
                0,
            )
        };
        match io::Error::last_os_error() {
            _ if sent == 0 => Ok(()),
            e if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            e => Err(e),
        }
    }
}

/// Reads `/proc`, cgroups and the files of low-level runtimes.
pub trait Reads {
    /// Returns all bytes of a file. More than 16 MiB are an error.
    fn file(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns the list of mounts, at most a second old.
    fn mounts(&self) -> io::Result<Vec<u8>> {
        self.file(Path::new(MOUNTINFO))
    }
    /// Returns the names in a folder.
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Returns the target of a link.
    fn link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Returns the device and inode number of the target of a path.
    fn identity(&self, path: &Path) -> io::Result<(u64, u64)>;
    /// Returns whether a process holds the lock of a file. A missing file is not locked.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;
    /// Returns false if the file system of one of these paths does not answer.
    fn answers(&self, paths: &[PathBuf]) -> bool;
}

/// The limit of a read, in bytes. No file in `/proc` and no record of a low-level runtime is this long.
const MAX: u64 = 16 << 20;

/// The machine that this process runs on.
pub struct Host;

impl Reads for Host {
    fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        files::read(path, MAX)
    }

    fn mounts(&self) -> io::Result<Vec<u8>> {
        hierarchies::recent_mounts()
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|e| Ok(e?.file_name())).collect()
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn identity(&self, path: &Path) -> io::Result<(u64, u64)> {
        fs::metadata(path).map(|m| (m.dev(), m.ino()))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        files::is_locked(path, Links::Refuse)
    }

    fn answers(&self, paths: &[PathBuf]) -> bool {
        answers(paths)
    }
}

/// Returns whether a failed read below `/proc/PID` says that the process does not exist. No other errno
/// does.
pub fn is_gone(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The disposition of SIGXFSZ when this process began.
static INHERITED: OnceLock<SigAction> = OnceLock::new();

fn set_disposition(signal: Signal, handler: SigHandler) -> Option<SigAction> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: neither disposition runs code of runmig.
    unsafe { sigaction(signal, &action) }.ok()
}

/// Makes a write beyond `RLIMIT_FSIZE` fail with EFBIG. By default the kernel would end the process between
/// two steps.
pub fn survive_file_limit() {
    if let Some(before) = set_disposition(Signal::SIGXFSZ, SigHandler::SigIgn) {
        let _ = INHERITED.set(before);
    }
}

/// Undoes `survive_file_limit` for the program that this process becomes. Async-signal-safe: one system
/// call.
pub fn hand_on_file_limit() {
    if let Some(before) = INHERITED.get() {
        // SAFETY: this process began with the disposition, so it runs no code of runmig.
        let _ = unsafe { sigaction(Signal::SIGXFSZ, before) };
    }
}

/// Lets this process wait for its children. It cannot wait if its parent left SIGCHLD ignored.
pub fn wait_for_children() {
    set_disposition(Signal::SIGCHLD, SigHandler::SigDfl);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::io::{Read, Write};
    use std::os::unix::ffi::OsStrExt;
    use std::process::{Command, Stdio};

    #[test]
    fn kills_process_once() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = PidFd::open(child.id() as i32).unwrap();
        process.kill().unwrap();
        child.wait().unwrap();
        process.kill().unwrap();
    }

    #[test]
    fn empty_boot_id_is_none() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("proc/sys/kernel/random/boot_id");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "\n").unwrap();
        let told = boot_id(root.path()).unwrap_err().line();
        assert!(told.contains("boot_id: it is empty"), "{told}");
        std::fs::write(&file, "1-2\n").unwrap();
        assert_eq!(boot_id(root.path()).unwrap(), BootId::new("1-2"));
    }

    #[test]
    fn only_a_missing_boot_id_means_the_hosts() {
        let root = tempfile::tempdir().unwrap();
        let file = "proc/sys/kernel/random/boot_id";
        let host = std::fs::read_to_string(Path::new("/").join(file)).unwrap();
        assert_eq!(boot_id(root.path()).unwrap(), BootId::new(host.trim()));
        std::fs::create_dir_all(root.path().join(file)).unwrap();
        let told = boot_id(root.path()).unwrap_err().line();
        assert!(told.contains("not a regular file"), "{told}");
    }

    #[test]
    fn parses_names_with_any_bytes() {
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
    fn tells_processes_of_one_pid_apart() {
        let us = current();
        assert!(is_alive(&us));
        assert!(is_ancestor(&us));
        assert!(!is_alive(&Process {
            start_time: us.start_time + 1,
            ..us
        }));
    }

    /// Starts `cat` by another name, which it has by the time that it answers.
    fn answering(path: &Path) -> std::process::Child {
        let mut cat = Command::new(path);
        cat.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = cat.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"a").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    #[test]
    fn reads_processes_named_by_any_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join(OsStr::from_bytes(b"\xff"));
        std::os::unix::fs::symlink("/bin/cat", &odd).unwrap();
        let mut child = answering(&odd);
        let process = of(child.id() as i32).unwrap();
        assert!(is_alive(&process));
        assert_eq!(name(process.pid), "\u{fffd}");
        let _ = child.kill();
        child.wait().unwrap();
        assert!(!is_alive(&process));
    }

    #[test]
    fn odd_stat_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_stat(&Host, dir.path()).unwrap(), None);
        std::fs::write(dir.path().join("stat"), "nothing known").unwrap();
        assert!(read_stat(&Host, dir.path()).is_err());
    }

    #[test]
    fn counts_zombie_as_dead() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        // The process has ended when the kernel says so, even before its parent waits for it.
        while std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|s| parse_stat(&s).is_some_and(|stat| !stat.is_over()))
        {
            std::thread::yield_now();
        }
        assert_eq!(of(pid), None);
        child.wait().unwrap();
    }

    #[test]
    fn kills_no_other_process_of_that_number() {
        let dead = |child: &mut std::process::Child| {
            // It ends with its standard input.
            drop(child.stdin.take());
            !child.wait().unwrap().success()
        };
        let cat = || Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (mut child, mut other) = (cat(), cat());
        let [process, of_other] = [&child, &other].map(|child| of(child.id() as i32).unwrap());
        kill(&process).unwrap();
        let start_time = of_other.start_time + 1;
        kill(&Process {
            start_time,
            ..of_other
        })
        .unwrap();
        assert_eq!((dead(&mut child), dead(&mut other)), (true, false));
        kill(&process).unwrap();
        let none = Process { pid: 0, start_time };
        assert!(kill(&none).is_err());
    }

    #[test]
    fn finds_processes_by_name_and_parent() {
        let (dir, us) = (tempfile::tempdir().unwrap(), std::process::id() as i32);
        let name = format!("cat-{us}");
        let path = dir.path().join(&name);
        std::os::unix::fs::symlink("/bin/cat", &path).unwrap();
        let mut child = answering(&path);
        let pid = child.id() as i32;
        let found = (
            called(&name),
            commands().contains(&(pid, name)),
            parent(pid),
        );
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(found, (vec![pid], true, Some(us)));
        assert_eq!(parent(i32::MAX), None);
    }

    #[test]
    fn tells_age_and_login_as_the_kernel_does() {
        let (first, us) = (age(1).unwrap(), age(current().pid).unwrap());
        assert!(first >= us && first > Duration::ZERO);
        assert_eq!(age(i32::MAX), None);
        let told = std::fs::read_to_string("/proc/self/loginuid").ok();
        let told = told.filter(|uid| uid.trim() != "4294967295");
        assert_eq!(login().map(|uid| uid.to_string()), told);
    }

    #[test]
    fn ignores_file_limit_until_it_becomes_another_program() {
        let is_ignored = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let set = { status.lines() }.find_map(|line| line.strip_prefix("SigIgn:"));
            let set = u64::from_str_radix(set.unwrap().trim(), 16).unwrap();
            set & 1 << (libc::SIGXFSZ - 1) != 0
        };
        let before = is_ignored();
        survive_file_limit();
        assert!(is_ignored());
        hand_on_file_limit();
        assert_eq!(is_ignored(), before);
    }
}
