//! Runs the low-level runtime as a child, and stands in for it, so that its caller sees no difference.

use super::lowlevel::{LowLevel, argv, c_string};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{self, SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::unistd::{ForkResult, Pid};
use runmig_lease::error::{Context, Result};
use runmig_lease::model::Process;
use runmig_lease::process;
use std::ffi::{CString, OsString, c_char};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// The descriptors that were open before runmig opened any. The engine hands them on to the low-level
/// runtime.
pub struct Inherited(Vec<i32>);

impl Inherited {
    /// Returns all descriptors that are open now, except those of runmig in `ours`.
    pub fn now(ours: &[&dyn AsFd]) -> Result<Inherited> {
        let mut all = process::descriptors().context(|| "read /proc/self/fd")?;
        // The listing used a descriptor itself, and a library could get its number next.
        all.retain(|fd| is_open(*fd) && !ours.iter().any(|o| o.as_fd().as_raw_fd() == *fd));
        Ok(Inherited(all))
    }

    /// Sets close-on-exec on all other descriptors, since a library may have opened some without it.
    fn close_all_others_on_exec(&self) -> Result<()> {
        for fd in process::descriptors().context(|| "read /proc/self/fd")? {
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

/// Opens `/dev/null` for each standard descriptor that the caller closed. Otherwise a file of runmig could
/// become standard error.
pub fn fill_standard_descriptors() {
    for fd in 0..3 {
        if !is_open(fd) {
            // All lower numbers are open, so the file gets this one, and keeps it across an exec.
            let null = nix::fcntl::open("/dev/null", OFlag::O_RDWR, Mode::empty());
            let _ = null.map(OwnedFd::into_raw_fd);
        }
    }
}

fn is_open(fd: i32) -> bool {
    // SAFETY: the number is only used within this statement, and a closed descriptor gives EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    nix::fcntl::fcntl(fd, FcntlArg::F_GETFD).is_ok()
}

/// The argument that tells `runmig-slice` the end of the low-level runtime.
const ENDED: &str = "--low-level-runtime-ended=";

/// Returns the argument for the end of the low-level runtime.
pub fn argument(ended: ExitStatus) -> String {
    match ended.signal() {
        Some(signal) => format!("{ENDED}signal:{signal}"),
        None => format!("{ENDED}exit:{}", ended.code().unwrap_or_default()),
    }
}

/// Takes that argument, which is the first, from the arguments.
pub fn take_argument(args: &mut Vec<OsString>) -> Option<ExitStatus> {
    let told = args.first()?.to_str()?.strip_prefix(ENDED)?;
    let (how, number) = told.split_once(':')?;
    let raw = match (how, number.parse().ok()?) {
        ("exit", status @ 0..=255) => status << 8,
        ("signal", signal @ 1..=64) => signal,
        _ => return None,
    };
    args.remove(0);
    Some(ExitStatus::from_raw(raw))
}

/// Says how the low-level runtime ended.
pub fn how(ended: ExitStatus) -> String {
    match ended.signal() {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("exited with status {}", ended.code().unwrap_or_default()),
    }
}

/// Ends this process as the low-level runtime ended, but without a core: the low-level runtime has left its own. Returns
/// the status for an exit.
pub fn propagate(ended: ExitStatus) -> i32 {
    let Some(signal) = ended.signal() else {
        return ended.code().unwrap_or_default();
    };
    // A program that collects cores heeds only this setting.
    let _ = nix::sys::prctl::set_dumpable(false);
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limits are a live local.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    // SAFETY: the default disposition runs no code of this program, and the set lives here.
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

/// A child that has not begun yet. It waits until runmig has recorded its process.
pub struct Waiting {
    pid: Pid,
    go: OwnedFd,
    signals: SignalFd,
}

/// Signals about runmig itself, which it does not catch. SIGCHLD it catches, and does not pass on.
const OWN: [Signal; 6] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGURG,
];

/// Forks the child that becomes the low-level runtime. With `ends_with_us` the kernel kills it when runmig
/// dies, as if the engine had killed it.
pub fn spawn(
    runtime: &LowLevel,
    args: &[OsString],
    inherited: &Inherited,
    ends_with_us: bool,
) -> Result<Waiting> {
    let what = || format!("start {}", runtime.path.display());
    // After the fork the child shares its pages, and freeing it would copy each of them.
    let mut image = ManuallyDrop::new(Image::new(runtime, args)?);
    inherited.close_all_others_on_exec()?;

    process::wait_for_children();
    let mut caught = SigSet::all();
    for own in OWN {
        caught.remove(own);
    }
    let mut before = SigSet::empty();
    signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&caught), Some(&mut before)).context(what)?;
    let signals = SignalFd::with_flags(&caught, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context(what)?;
    let (wait, go) = nix::unistd::pipe2(OFlag::O_CLOEXEC).context(what)?;

    let us = nix::unistd::getpid();
    // SAFETY: until its exec the child only makes system calls, and the parent made all that it needs before. So
    // another thread may be there, as one that waits for a lock in vain.
    match unsafe { nix::unistd::fork() }.context(what)? {
        ForkResult::Parent { child } => Ok(Waiting {
            pid: child,
            go,
            signals,
        }),
        ForkResult::Child => {
            drop(go);
            if ends_with_us {
                // The child asks for this before it reads the pipe, which shows a parent that is already
                // gone.
                let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
            }
            let mut byte = [0u8];
            // The end of the file means that the parent is gone, and with it the reason to go on.
            let told = nix::unistd::read(&wait, &mut byte) == Ok(1);
            // The parent may have written the byte, and died before the child asked to die with it.
            let too_late = ends_with_us && nix::unistd::getppid() != us;
            if told && !too_late {
                let _ = signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
                process::hand_on_file_limit();
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

    /// Lets the child begin, and stands in for it until it ends. Calls `meanwhile` from time to time, until
    /// that returns `Done`.
    pub fn run(self, mut meanwhile: impl FnMut() -> Meanwhile) -> Result<ExitStatus> {
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
                // A terminal sends its signals to the child as well, which is in the same process group.
                let from_terminal = info.ssi_code == libc::SI_KERNEL;
                let signal = info.ssi_signo as i32;
                if signal != libc::SIGCHLD && !from_terminal {
                    // SAFETY: no memory is involved. runmig has not waited for the child yet, so the number
                    // is still the child's.
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

/// Returns the end of the child, if it has ended. It calls `waitpid` itself, since nix has no value for a
/// death by a real-time signal.
fn ended(pid: Pid) -> Result<Option<ExitStatus>> {
    let mut status = 0;
    // SAFETY: the status is a live local.
    match unsafe { libc::waitpid(pid.as_raw(), &mut status, libc::WNOHANG) } {
        0 => Ok(None),
        -1 => match Errno::last() {
            Errno::EINTR => Ok(None),
            e => Err(e).context(|| "wait for the low-level runtime"),
        },
        _ => Ok(Some(ExitStatus::from_raw(status))),
    }
}

/// The image of a child, laid out before the fork. Between fork and exec the child must not allocate, since a library's thread
/// could have held the allocator's lock.
pub struct Image {
    path: CString,
    /// The strings that `argv` and `environment` point into.
    _strings: Vec<CString>,
    argv: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// `LISTEN_PID=` and room for a number, if the environment names this process in `LISTEN_PID`.
    listen_pid: Option<Box<[u8; LISTEN_PID.len() + 11]>>,
}

const LISTEN_PID: &[u8] = b"LISTEN_PID=";

impl Image {
    pub fn new(runtime: &LowLevel, args: &[OsString]) -> Result<Image> {
        let path = c_string(runtime.path.as_os_str())?;
        let mut strings = argv(runtime.path.as_os_str(), args)?;
        let arguments = strings.len();
        let us = std::process::id().to_string();
        let mut listen_pid = None;
        for (name, value) in std::env::vars_os() {
            if name == "LISTEN_PID" && value == us.as_str() {
                let mut text = Box::new([0; LISTEN_PID.len() + 11]);
                text[..LISTEN_PID.len()].copy_from_slice(LISTEN_PID);
                listen_pid = Some(text);
                continue;
            }
            let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
            strings.push(CString::new(text).because(|| "the environment holds a NUL")?);
        }
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|s| s.as_ptr()).collect()
        };
        let mut argv = pointers(&strings[..arguments]);
        argv.push(std::ptr::null());
        let mut environment = pointers(&strings[arguments..]);
        environment.extend(
            listen_pid
                .as_ref()
                .map(|text| text.as_ptr().cast::<c_char>()),
        );
        environment.push(std::ptr::null());
        Ok(Image {
            path,
            _strings: strings,
            argv,
            environment,
            listen_pid,
        })
    }

    /// Executes the image in the child, and returns only if that fails. systemd's descriptors are for the
    /// process that `LISTEN_PID` names, which is now the child.
    pub fn exec(&mut self) {
        if let Some(text) = &mut self.listen_pid {
            let us = std::process::id();
            let _ = write!(&mut text[LISTEN_PID.len()..], "{us}\0");
        }
        // SAFETY: the path is a C string, the arrays end with a null and point to C strings, all of
        // which live in `self`.
        unsafe {
            libc::execve(
                self.path.as_ptr(),
                self.argv.as_ptr(),
                self.environment.as_ptr(),
            );
        }
    }
}
