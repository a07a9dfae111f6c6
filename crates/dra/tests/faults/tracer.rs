//! Counts the system calls with an effect that a process with threads makes, and kills it before one of them.
//!
//! strace counts the calls of each thread on its own, and tokio gives work to any of its threads. So this counts over all
//! threads, from the moment at which the test arms it.

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::kill;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use testkit::prelude::*;

/// PTRACE_EVENT_STOP, the stop of a seized process, which not every C library defines.
const STOP: i32 = 128;

/// A process that a thread of the test traces until it ends. Nobody else may wait for it before.
pub struct Traced {
    process: Pid,
    thread: JoinHandle<()>,
    state: Arc<State>,
}

struct State {
    /// The calls since the start, as they are shown.
    seen: Mutex<Vec<String>>,
    counts: AtomicBool,
    kill_at: Option<usize>,
    /// Calls at other files have no effect for anybody.
    below: PathBuf,
}

impl Traced {
    /// Traces a process that runs or stands still, and kills it before its nth call with an effect: one at a file below
    /// this folder, or at a socket.
    pub fn new(process: u32, below: &Path, kill_at: Option<usize>) -> Traced {
        let process = Pid::from_raw(process.cast_signed());
        let state = Arc::new(State {
            seen: Mutex::default(),
            counts: AtomicBool::new(true),
            kill_at,
            below: below.to_owned(),
        });
        let (ready, is_ready) = std::sync::mpsc::channel();
        let its = state.clone();
        let thread = std::thread::spawn(move || {
            seize(process);
            ready.send(()).unwrap();
            its.follow(process);
        });
        is_ready.recv().expect("a tracer");
        Traced {
            process,
            thread,
            state,
        }
    }

    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the process. Returns the calls that it made.
    pub fn end(self) -> Vec<String> {
        self.state.counts.store(false, Ordering::SeqCst);
        let _ = kill(self.process, Signal::SIGKILL);
        self.thread.join().unwrap();
        std::mem::take(&mut self.state.seen.lock().unwrap())
    }
}

/// Traces all threads, until no new one comes.
fn seize(process: Pid) {
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    let mut known = Vec::new();
    loop {
        let before = known.len();
        for task in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
            let name = task.unwrap().file_name().into_string().unwrap();
            let thread = Pid::from_raw(name.parse().unwrap());
            // A thread of a traced one is traced already.
            if !known.contains(&thread) {
                known.push(thread);
                if ptrace::seize(thread, options).is_ok() {
                    let _ = ptrace::interrupt(thread);
                }
            }
        }
        if known.len() == before {
            return;
        }
    }
}

impl State {
    fn follow(&self, process: Pid) {
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            let stopped = match waitpid(None, Some(flags)) {
                Ok(stopped) => stopped,
                Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            let (thread, signal) = match stopped {
                WaitStatus::PtraceSyscall(thread) => {
                    self.look(process, thread);
                    (thread, None)
                }
                WaitStatus::PtraceEvent(thread, signal, event) => {
                    // The stop of a whole process, which somebody else ends.
                    let is_stop =
                        event == STOP && matches!(signal, Signal::SIGSTOP | Signal::SIGTSTP);
                    if is_stop {
                        let _ = kill(process, Signal::SIGCONT);
                    }
                    (thread, None)
                }
                WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
                _ => continue,
            };
            // It may have been killed meanwhile.
            let _ = ptrace::syscall(thread, signal);
        }
    }

    fn look(&self, process: Pid, thread: Pid) {
        if !self.counts.load(Ordering::SeqCst) {
            return;
        }
        let Some((number, arguments)) = entered(thread) else {
            return;
        };
        let Some(shown) = self.effect(process, number, arguments) else {
            return;
        };
        let mut seen = self.seen.lock().unwrap();
        seen.push(shown);
        if Some(seen.len()) == self.kill_at {
            self.counts.store(false, Ordering::SeqCst);
            kill(process, Signal::SIGKILL).unwrap();
        }
    }

    /// Returns a call with an effect, as a test shows it.
    #[allow(non_upper_case_globals)] // the names of the kernel
    fn effect(&self, process: Pid, number: i64, [a, b, c, d]: [u64; 4]) -> Option<String> {
        use nix::libc::*;
        const WRITES: u64 = (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) as u64;
        let path = |at: u64| text(process, at);
        let fd = |fd: u64| {
            let link = fs::read_link(format!("/proc/{process}/fd/{fd}"));
            link.ok().map(|l| l.to_string_lossy().into_owned())
        };
        let (name, object) = match number {
            SYS_openat if c & WRITES != 0 => ("openat", path(b)),
            SYS_renameat => ("renameat", path(d)),
            SYS_renameat2 => ("renameat2", path(d)),
            SYS_unlinkat => ("unlinkat", path(b)),
            SYS_linkat => ("linkat", path(d)),
            SYS_mkdirat => ("mkdirat", path(b)),
            SYS_symlinkat => ("symlinkat", path(c)),
            SYS_fchmodat => ("fchmodat", path(b)),
            #[cfg(target_arch = "x86_64")]
            SYS_open if b & WRITES != 0 => ("open", path(a)),
            #[cfg(target_arch = "x86_64")]
            SYS_rename => ("rename", path(b)),
            #[cfg(target_arch = "x86_64")]
            SYS_unlink => ("unlink", path(a)),
            #[cfg(target_arch = "x86_64")]
            SYS_link => ("link", path(b)),
            #[cfg(target_arch = "x86_64")]
            SYS_mkdir => ("mkdir", path(a)),
            #[cfg(target_arch = "x86_64")]
            SYS_rmdir => ("rmdir", path(a)),
            #[cfg(target_arch = "x86_64")]
            SYS_chmod => ("chmod", path(a)),
            SYS_bind => ("bind", fd(a)),
            SYS_write => ("write", fd(a)),
            SYS_pwrite64 => ("pwrite64", fd(a)),
            SYS_writev => ("writev", fd(a)),
            SYS_sendto => ("sendto", fd(a)),
            SYS_sendmsg => ("sendmsg", fd(a)),
            SYS_ftruncate => ("ftruncate", fd(a)),
            SYS_fsync => ("fsync", fd(a)),
            SYS_fdatasync => ("fdatasync", fd(a)),
            SYS_fchmod => ("fchmod", fd(a)),
            SYS_flock => ("flock", fd(a)),
            _ => return None,
        };
        let object = object?;
        if object.starts_with("socket:") {
            return Some(format!("{name} to a socket"));
        }
        let inside = Path::new(&object).strip_prefix(&self.below).ok()?;
        // The simulated driver's own files are one step to a process that runs on a real one.
        let is_other =
            inside.starts_with("machine") || inside.extension().is_some_and(|e| e == "log");
        (!is_other).then(|| format!("{name} {}", inside.display()))
    }
}

/// Returns the call that a thread is about to make. None at the end of one.
fn entered(thread: Pid) -> Option<(i64, [u64; 4])> {
    let r = ptrace::getregs(thread).ok()?;
    #[cfg(target_arch = "x86_64")]
    {
        // The kernel fills in ENOSYS before the call.
        let is_entry = r.rax.cast_signed() == -i64::from(nix::libc::ENOSYS);
        is_entry.then_some((r.orig_rax.cast_signed(), [r.rdi, r.rsi, r.rdx, r.r10]))
    }
    #[cfg(target_arch = "aarch64")]
    {
        let x = r.regs;
        (x[7] == 0).then_some((x[8].cast_signed(), [x[0], x[1], x[2], x[3]]))
    }
}

/// Returns a text in the memory of a process.
fn text(process: Pid, at: u64) -> Option<String> {
    let memory = File::open(format!("/proc/{process}/mem")).ok()?;
    let mut bytes = Vec::new();
    let mut part = [0; 256];
    while bytes.len() < 4096 {
        let read = memory.read_at(&mut part, at + bytes.len() as u64).ok()?;
        let end = part[..read].iter().position(|byte| *byte == 0);
        bytes.extend_from_slice(&part[..end.unwrap_or(read)]);
        if end.is_some() || read == 0 {
            return String::from_utf8(bytes).ok();
        }
    }
    None
}
