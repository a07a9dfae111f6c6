//! Every system call of ours that can have an effect, found by strace, and a process that is killed
//! right before one of them. After one is before the next: what lies between two of them leaves no
//! trace outside of the process.

use super::numbered;
use crate::prelude::*;
use crate::process::take_over;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;

/// Calls that only look, or change only the process itself. A call that is not here is a point, so
/// a forgotten one is found all the same.
const HARMLESS: &str = "\
    access,arch_prctl,brk,clock_gettime,clock_nanosleep,close,dup,dup2,dup3,epoll_create1,\
    exit,exit_group,faccessat,faccessat2,fcntl,fstat,fstatfs,futex,getcwd,getdents64,getegid,\
    geteuid,getgid,getpid,getppid,getrandom,getrusage,gettid,getuid,inotify_add_watch,\
    inotify_init1,ioctl,lseek,lstat,madvise,mmap,mprotect,mremap,munmap,newfstatat,poll,ppoll,\
    pread64,prlimit64,read,readlink,readlinkat,readv,restart_syscall,rseq,rt_sigaction,\
    rt_sigprocmask,rt_sigreturn,sched_getaffinity,sched_yield,set_robust_list,set_tid_address,\
    sigaltstack,signalfd4,stat,statfs,statx,sysinfo,umask,uname,wait4,waitid";

/// The Kth call of a name that a process makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub call: String,
    pub nth: u64,
    /// With its arguments, as strace shows them.
    pub shown: String,
}

impl Point {
    /// Whether it is about a file below a directory.
    pub fn is_within(&self, dir: &Path) -> bool {
        self.shown.contains(&format!("{}/", dir.display()))
    }

    /// Whether nobody can tell afterwards that the call was made: a lock goes with its process, a sync and
    /// a call that failed change nothing, all lock files are there, and their text counts only while they
    /// are locked.
    pub fn leaves_nothing(&self) -> bool {
        let is_about_lock = self.shown.contains(".lock>") || self.shown.contains(".lock\"");
        let has_failed = self.shown.contains(" = -1 E");
        match self.call.as_str() {
            "flock" | "fsync" | "fdatasync" | "pipe2" | "socketpair" => true,
            "openat" | "write" | "ftruncate" => is_about_lock || has_failed,
            _ => has_failed,
        }
    }
}

/// Those of the points at which a killed process leaves a state that it leaves at no other. The system calls
/// of the simulated driver are no points: the kernel does that work, and a signal waits for its end.
pub fn of_each_state(points: Vec<Point>, driver: &Path) -> Vec<Point> {
    let mut distinct = Vec::new();
    let mut same: Vec<Point> = Vec::new();
    let mut in_driver = false;
    for point in points {
        // The driver's mark that a change is under way.
        if point.is_within(driver) && point.shown.contains("/unsettled\"") {
            in_driver = point.call != "unlink";
            continue;
        }
        let is_at = |part: &&str| point.shown.contains(&format!("{}{part}", driver.display()));
        let of_driver = ["/state", "/lock", "/trace", "/faults", "/proc/"];
        if in_driver || of_driver.iter().any(is_at) {
            continue;
        }
        let ends = !point.leaves_nothing();
        same.push(point);
        if ends {
            distinct.extend(most_certain(&mut same));
        }
    }
    distinct.extend(most_certain(&mut same));
    distinct
}

/// One of these: how often a process opens a file depends on what else the machine runs.
fn most_certain(same: &mut Vec<Point>) -> Option<Point> {
    let all = std::mem::take(same);
    let is_certain = |point: &&Point| point.call != "openat";
    all.iter().find(is_certain).or(all.first()).cloned()
}

/// A command that can be run again, which `Command` forgets to say how.
pub struct Call {
    pub command: Command,
    pub stdin: Option<PathBuf>,
}

impl Call {
    /// Starts it.
    pub fn going(&mut self) -> Going {
        let stdin = self.stdin();
        going(self.command.stdin(stdin))
    }

    pub fn stdin(&self) -> Stdio {
        match &self.stdin {
            Some(file) => fs::File::open(file).unwrap().into(),
            None => Stdio::null(),
        }
    }
}

impl From<Command> for Call {
    fn from(command: Command) -> Call {
        let stdin = None;
        Call { command, stdin }
    }
}

/// Whether strace is there and may trace.
pub fn is_there() -> bool {
    let mut strace = Command::new("strace");
    let tried = strace.args(["-o", "/dev/null", "true"]).output();
    let works = tried.is_ok_and(|out| out.status.success());
    if !works {
        crate::skip("strace is not there, or may not trace");
    }
    works
}

/// Runs a command to its end and gives the points it passed.
pub fn points(call: &Call, log: &Path, succeeds: bool) -> Vec<Point> {
    let effects = format!("trace=!{HARMLESS}");
    let traced = under_strace(call, log, &[effects, PATHS.to_owned()]);
    let out = settled(&traced);
    assert_eq!(out.status.success(), succeeds, "{out:?}");
    let mut points = logged(log);
    points.retain(|p| {
        let mut writes = ["O_CREAT", "O_TRUNC", "O_WRONLY", "O_RDWR"].iter();
        let writes = writes.any(|flag| p.shown.contains(flag));
        let looks = matches!(p.call.as_str(), "open" | "openat") && !writes;
        // The first is strace's own, of our program.
        (p.call.as_str(), p.nth) != ("execve", 1) && !looks
    });
    points
}

/// Descriptors are shown with their paths.
const PATHS: &str = "decode-fds=path";

/// All calls of these names, with commas, that a command makes, with the paths of its descriptors.
pub fn calls(call: &Call, log: &Path, names: &str) -> Vec<Point> {
    let all = [format!("trace={names}"), PATHS.to_owned()];
    settled(&under_strace(call, log, &all));
    logged(log)
}

fn logged(log: &Path) -> Vec<Point> {
    let text = fs::read_to_string(log).unwrap();
    let calls = text.lines().filter(|line| line.contains('('));
    let names = calls.clone().filter_map(|line| line.split('(').next());
    let point = |((call, nth), shown): ((&str, u64), &str)| Point {
        call: call.to_owned(),
        nth,
        shown: shown.to_owned(),
    };
    numbered(names).into_iter().zip(calls).map(point).collect()
}

/// The command, with one of its calls failing.
pub fn failing(call: &Call, log: &Path, point: &Point, error: &str) -> Call {
    let (name, nth) = (&point.call, point.nth);
    let inject = format!("inject={name}:error={error}:when={nth}");
    let all = [format!("trace={name}"), inject, PATHS.to_owned()];
    under_strace(call, log, &all)
}

/// The call that failed so.
pub fn injected(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap();
    let mut lines = text.lines().filter(|l| l.ends_with("(INJECTED)"));
    lines.next().unwrap_or_default().to_owned()
}

/// Runs a command that is killed at a point, and everything that it started to its end. Whether the
/// point was reached.
pub fn killed_at(call: &Call, log: &Path, point: &Point) -> bool {
    // It does not count its own exec of our program.
    let when = point.nth - u64::from(point.call == "execve");
    let name = &point.call;
    let inject = format!("inject={name}:signal=SIGKILL:when={when}");
    settled(&under_strace(call, log, &[format!("trace={name}"), inject]));
    let text = fs::read_to_string(log).unwrap();
    text.contains("+++ killed by SIGKILL")
}

fn under_strace(call: &Call, log: &Path, expressions: &[String]) -> Call {
    under_strace_at(None, call, log, expressions)
}

/// The same, with the calls that name a path alone.
fn under_strace_at(path: Option<&Path>, call: &Call, log: &Path, expressions: &[String]) -> Call {
    let mut options = vec!["-s", "96", "-o", log.to_str().unwrap()];
    options.extend(path.iter().flat_map(|path| ["-P", path.to_str().unwrap()]));
    options.extend(expressions.iter().flat_map(|e| ["-e", e.as_str()]));
    traced(call, &options)
}

/// `strace OPTIONS` of a command, with its environment.
pub fn traced(call: &Call, options: &[&str]) -> Call {
    let mut traced = Command::new("strace");
    traced.args(options).arg(call.command.get_program());
    take_over(&mut traced, &call.command);
    traced.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let stdin = call.stdin.clone();
    Call {
        command: traced,
        stdin,
    }
}

/// Runs a command until it and all that came of it, but for the containers, are gone: they share a
/// pipe, and nobody is left when it ends. They also share a session, by which those are known that have
/// closed the pipe and are not yet gone.
pub fn settled(call: &Call) -> Said {
    let mut command = Command::new(call.command.get_program());
    take_over(&mut command, &call.command);
    command.stdin(call.stdin());
    let (mut read, write) = std::io::pipe().unwrap();
    let write = OwnedFd::from(write);
    let fd = write.as_raw_fd();
    // SAFETY: two system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            match libc::setsid() != -1 && libc::fcntl(fd, libc::F_SETFD, 0) == 0 {
                true => Ok(()),
                false => Err(io::Error::last_os_error()),
            }
        });
    }
    let going = going(&mut command);
    let session = going.pid();
    drop(write);
    let said = going.end();
    let mut rest = Vec::new();
    read.read_to_end(&mut rest).unwrap();
    until("what closed the pipe has ended", || {
        !somebody_is_ending(session)
    });
    said
}

/// Whether a process of the session is ending: it closes its files first, and is alive to all who ask
/// for as long as the machine gives it no time to go on. By then it has no arguments and no environment.
fn somebody_is_ending(session: i32) -> bool {
    const EXITING: u64 = 4; // PF_EXITING in the kernel's include/linux/sched.h
    let is_ending = |stat: &str| -> Option<bool> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let (state, of, flags) = (fields.first()?, fields.get(3)?, fields.get(6)?);
        let of: i32 = of.parse().ok()?;
        let flags: u64 = flags.parse().ok()?;
        Some(of == session && flags & EXITING != 0 && !matches!(*state, "Z" | "X"))
    };
    let mut processes = fs::read_dir("/proc").unwrap().flatten();
    processes.any(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat"));
        stat.is_ok_and(|stat| is_ending(&stat) == Some(true))
    })
}

/// Starts a command and returns when it stands still right after a point, or has ended without it. With a path the point
/// is the Kth call of its name that names the path.
pub fn stopped_at(call: &Call, log: &Path, (point, path): (&Point, Option<&Path>)) -> Going {
    let _ = fs::remove_file(log);
    let (name, nth) = (&point.call, point.nth);
    let inject = format!("inject={name}:signal=STOP:when={nth}");
    let expressions = [format!("trace={name}"), inject];
    let mut traced = under_strace_at(path, call, log, &expressions);
    let mut going = traced.going();
    until("it stands still", || {
        let said = fs::read_to_string(log).unwrap_or_default();
        said.contains("--- stopped by SIGSTOP ---") || going.ended().is_some()
    });
    going
}

/// Lets a command go on that `stopped_at` has stopped.
pub fn go_on(stopped: &Going) {
    for pid in children(stopped.pid()) {
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    }
}
