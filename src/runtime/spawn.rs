//! Standing in for the low-level runtime: it runs as our child and the world sees no difference.

use super::image::Image;
use super::lowlevel::LowLevel;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{self, SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Pid};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::model::Process;
use runmig_lease::process::{self, signals};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The descriptors that were ours before we opened any: what the engine hands on.
pub struct Inherited(Vec<i32>);

impl Inherited {
    /// All that are open now, but for these of ours.
    pub fn now(ours: &[&dyn AsFd]) -> Result<Inherited> {
        let mut all = open_descriptors()?;
        // The listing itself used one, which a library could get next.
        all.retain(|fd| is_open(*fd) && !ours.iter().any(|o| o.as_fd().as_raw_fd() == *fd));
        Ok(Inherited(all))
    }

    /// A library may have opened some without close-on-exec; none of those goes on.
    fn close_all_others_on_exec(&self) -> Result<()> {
        for fd in open_descriptors()? {
            if !self.0.contains(&fd) {
                // SAFETY: the number is only used within this statement; if it was closed since it
                // was listed, the call fails with EBADF and nothing happens.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                let _ = nix::fcntl::fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
            }
        }
        Ok(())
    }
}

/// A file of ours must not become standard error because the caller closed that.
pub fn fill_standard_descriptors() {
    for fd in 0..3 {
        if !is_open(fd) {
            // The lowest free number is this one: those below are open.
            let null = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/null");
            let _ = null
                .map(std::os::fd::IntoRawFd::into_raw_fd)
                .map(keep_on_exec);
        }
    }
}

fn keep_on_exec(fd: i32) {
    // SAFETY: the descriptor was just opened and is nobody else's.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let _ = nix::fcntl::fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()));
}

fn is_open(fd: i32) -> bool {
    // SAFETY: the number is only used within this statement; one that is closed gives EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    nix::fcntl::fcntl(fd, FcntlArg::F_GETFD).is_ok()
}

fn open_descriptors() -> Result<Vec<i32>> {
    const DIR: &str = "/proc/self/fd";
    let entries = std::fs::read_dir(DIR).context(|| format!("read {DIR}"))?;
    Ok(entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect())
}

/// How the low-level runtime ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    /// By the signal of this number; real-time ones have no name.
    Killed(i32),
}

impl Ended {
    pub fn succeeded(self) -> bool {
        self == Ended::Exited(0)
    }

    /// Our own end, the same, but for a core: the low-level runtime has left its own.
    pub fn propagate(self) -> i32 {
        match self {
            Ended::Exited(status) => status,
            Ended::Killed(signal) => {
                // A program that collects cores heeds this one alone.
                let _ = nix::sys::prctl::set_dumpable(false);
                let none = libc::rlimit {
                    rlim_cur: 0,
                    rlim_max: 0,
                };
                // SAFETY: the limits are a live local.
                unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
                // SAFETY: the default disposition runs no code of ours, and the set lives here.
                unsafe {
                    libc::signal(signal, libc::SIG_DFL);
                    let mut one = std::mem::zeroed();
                    libc::sigemptyset(&mut one);
                    libc::sigaddset(&mut one, signal);
                    libc::sigprocmask(libc::SIG_UNBLOCK, &one, std::ptr::null_mut());
                    libc::raise(signal);
                }
                128 + signal
            }
        }
    }
}

/// A child that has not begun yet: it waits for us to write down who it is.
pub struct Waiting {
    pid: Pid,
    go: OwnedFd,
    signals: SignalFd,
}

/// Signals that are about ourselves and are not passed on.
const OWN: [Signal; 7] = [
    Signal::SIGCHLD,
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGURG,
];

/// `ends_with_us`: it is killed when we are, as if the engine had killed it.
pub fn spawn(
    runtime: &LowLevel,
    args: &[OsString],
    inherited: &Inherited,
    ends_with_us: bool,
) -> Result<Waiting> {
    let what = || format!("start {}", runtime.path().display());
    let mut image = Image::new(runtime, args)?;
    inherited.close_all_others_on_exec()?;

    signals::wait_for_children();
    let mut caught = SigSet::all();
    for own in OWN.iter().skip(1) {
        caught.remove(*own);
    }
    let mut before = SigSet::empty();
    signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&caught), Some(&mut before)).context(what)?;
    let signals = SignalFd::with_flags(&caught, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context(what)?;
    let (wait, go) = nix::unistd::pipe2(OFlag::O_CLOEXEC).context(what)?;

    let us = nix::unistd::getpid();
    // SAFETY: this process has one thread, and the child makes system calls only until it execs: all
    // it needs was made before.
    match unsafe { nix::unistd::fork() }.context(what)? {
        ForkResult::Parent { child } => Ok(Waiting {
            pid: child,
            go,
            signals,
        }),
        ForkResult::Child => {
            drop(go);
            if ends_with_us {
                // Before the pipe is read: a parent that is gone by then is seen there.
                let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
            }
            let mut byte = [0u8];
            // The end of the file means that the parent is gone, and with it the reason to go on.
            let told = nix::unistd::read(&wait, &mut byte) == Ok(1);
            // Told by one that was killed before the request to die with it was made.
            let too_late = ends_with_us && nix::unistd::getppid() != us;
            if told && !too_late {
                let _ = signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
                signals::hand_on_file_limit();
                image.exec();
            }
            // SAFETY: ends the child at once, without the parent's exit handlers.
            unsafe { libc::_exit(127) }
        }
    }
}

impl Waiting {
    pub fn process(&self) -> Process {
        process::of(self.pid.as_raw()).unwrap_or(Process {
            pid: self.pid.as_raw(),
            start_time: 0,
        })
    }

    /// Lets it begin, and stands in for it until it ends. `meanwhile` is asked from time to time,
    /// until it has nothing more to do.
    pub fn run(self, mut meanwhile: impl FnMut() -> Meanwhile) -> Result<Ended> {
        let what = || "wait for the low-level runtime";
        nix::unistd::write(&self.go, b"g").context(what)?;
        drop(self.go);
        let mut gap = Some(Duration::from_millis(5));
        loop {
            if let Some(ended) = ended(self.pid)? {
                return Ok(ended);
            }
            let timeout = match gap {
                Some(gap) => PollTimeout::try_from(gap).unwrap_or(PollTimeout::MAX),
                None => PollTimeout::NONE,
            };
            let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context(what),
            }
            while let Ok(Some(info)) = self.signals.read_signal() {
                // A terminal sends its signals to the child as well: the same process group.
                let from_terminal = info.ssi_code == libc::SI_KERNEL;
                let signal = info.ssi_signo as i32;
                if signal != libc::SIGCHLD && !from_terminal {
                    // SAFETY: no memory is involved; the child is not waited for yet, so the number
                    // is still its.
                    unsafe { libc::kill(self.pid.as_raw(), signal) };
                }
            }
            if let Some(now) = gap {
                gap = match meanwhile() {
                    Meanwhile::AskAgain => Some((now * 2).min(Duration::from_secs(1))),
                    Meanwhile::Done => None,
                };
            }
        }
    }
}

#[derive(PartialEq, Eq)]
pub enum Meanwhile {
    AskAgain,
    Done,
}

/// By hand, since nix has no word for a death by a real-time signal.
fn ended(pid: Pid) -> Result<Option<Ended>> {
    let mut status = 0;
    // SAFETY: the status is a live local.
    match unsafe { libc::waitpid(pid.as_raw(), &mut status, libc::WNOHANG) } {
        0 => Ok(None),
        -1 => match Errno::last() {
            Errno::EINTR => Ok(None),
            e => Err(Error::new("wait for the low-level runtime").caused_by(e)),
        },
        _ if libc::WIFEXITED(status) => Ok(Some(Ended::Exited(libc::WEXITSTATUS(status)))),
        _ if libc::WIFSIGNALED(status) => Ok(Some(Ended::Killed(libc::WTERMSIG(status)))),
        _ => Ok(None),
    }
}
