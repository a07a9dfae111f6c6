//! A child that runs a piece of the core with a plan for its effects.

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use nvml_sim::fault::{self, Moment, Outcome, Rule};
use runmig_lease::effect::{self, Kind};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};

/// What becomes of the effects of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    Run,
    /// The child ends before its n-th effect.
    Die(usize),
    /// The child ends in the middle of its n-th effect: a call of the driver has a middle.
    DieWithin(usize),
    /// The n-th effect fails: with an errno, or with a code of the driver.
    Fail(usize, i32),
    /// The driver does the work of the n-th effect, and returns the code all the same.
    FailAfter(usize, i32),
    /// The child stops before its n-th effect, says so, and goes on when it is told.
    Stop(usize),
    /// The child stops before each effect at which a death leaves something new, says so, and goes on when it is told.
    Watch,
    /// The child says when it waits for another process.
    Tell,
    /// Each effect of the child makes a system call that names it.
    Mark,
    /// A helper, whose effects do not count.
    Deaf,
}

/// The end of a child.
#[derive(Debug)]
pub enum Ended {
    Done(Result<(), String>),
    /// By its plan.
    Died,
    /// By itself.
    Broken(String),
}

/// The effects of the last child, in memory that it shares with its parent.
struct Page {
    count: AtomicUsize,
    kinds: [AtomicU8; MOST],
}

/// The most effects of a child that are noted.
const MOST: usize = 4000;
const DIED: i32 = 42;
/// The longest that a child may take, in seconds.
const PATIENCE: u32 = 40;

/// The kinds in the order of their numbers in the page.
pub const KINDS: &[Kind] = &[
    Kind::Open,
    Kind::Write,
    Kind::Cut,
    Kind::Sync,
    Kind::Rename,
    Kind::Link,
    Kind::Unlink,
    Kind::MakeDir,
    Kind::RemoveDir,
    Kind::Mode,
    Kind::Owner,
    Kind::Lock,
    Kind::Start,
    Kind::Kill,
    Kind::Driver,
];

static PLAN: OnceLock<(Plan, PathBuf)> = OnceLock::new();
static HAS_STOPPED: AtomicBool = AtomicBool::new(false);

fn page() -> &'static Page {
    static PAGE: OnceLock<usize> = OnceLock::new();
    let at = *PAGE.get_or_init(|| {
        let length = size_of::<Page>();
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: new memory at no given address.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        start as usize
    });
    // SAFETY: the memory is as large as a page, lasts as long as the process, and zeros are a value of it.
    unsafe { &*(at as *const Page) }
}

/// Returns the kinds of the effects of the last child, in their order.
pub fn effects() -> Vec<Kind> {
    let count = page().count.load(SeqCst).min(MOST);
    let kind = |number: &AtomicU8| KINDS[usize::from(number.load(SeqCst))];
    page().kinds[..count].iter().map(kind).collect()
}

/// Runs the rest of the program as the first process of a pid namespace, and returns its status to the one that called it.
/// Returns none to the rest, and where the machine has no such namespaces for us.
pub fn in_namespace() -> Option<ExitCode> {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS).ok()?;
    // SAFETY: this program has one thread.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Parent { child } => Some(match waitpid(child, None).expect("a child") {
            WaitStatus::Exited(_, 0) => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }),
        ForkResult::Child => {
            let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
                .expect("private mounts");
            mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none).expect("a /proc");
            None
        }
    }
}

/// Waits for processes that have ended and whose parents have too, such as daemons. No child runs now but inits.
pub fn reap_orphans() {
    while matches!(
        waitpid(None, Some(WaitPidFlag::WNOHANG)),
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
    ) {}
}

/// Loads the driver's library without a call of it, so that no child has to.
pub fn load(library: &Path) {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(library.as_os_str().as_bytes()).expect("a path");
    // SAFETY: the simulated driver does nothing when it is loaded.
    let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!loaded.is_null(), "{} cannot be loaded", library.display());
}

/// Starts a child without waiting for it.
pub fn start(
    machine: &Path,
    verdict: &Path,
    plan: Plan,
    act: impl FnOnce() -> Result<(), String>,
) -> Pid {
    page().count.store(0, SeqCst);
    if plan != Plan::Deaf {
        let _ = std::fs::remove_file(verdict);
    }
    // SAFETY: this program has one thread, so the child may do whatever it likes.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            // SAFETY: takes a number alone.
            unsafe { libc::alarm(PATIENCE) };
            PLAN.set((plan, machine.to_owned())).expect("one plan");
            effect::hear((plan != Plan::Deaf).then_some(hear as effect::Hook));
            if plan == Plan::Mark {
                mark("begin");
            }
            let done = catch_unwind(AssertUnwindSafe(act));
            if plan == Plan::Mark {
                mark("end");
            }
            effect::hear(None);
            let said = match done {
                Ok(Ok(())) => None,
                Ok(Err(e)) => Some(format!("E{e}")),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text =
                        text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                    Some(format!("P{}", text.unwrap_or_default()))
                }
            };
            if let Some(said) = said {
                let _ = std::fs::write(verdict, said);
            }
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Waits for the end of a child.
pub fn end(child: Pid, verdict: &Path) -> Ended {
    of(waitpid(child, None).expect("a child"), verdict)
}

/// Returns the end of a child, if it has ended.
pub fn ended(child: Pid, verdict: &Path) -> Option<Ended> {
    match waitpid(child, Some(WaitPidFlag::WNOHANG)).expect("a child") {
        WaitStatus::StillAlive => None,
        status => Some(of(status, verdict)),
    }
}

fn of(status: WaitStatus, verdict: &Path) -> Ended {
    match status {
        WaitStatus::Exited(_, DIED) => Ended::Died,
        WaitStatus::Signaled(_, Signal::SIGKILL, _) => Ended::Died,
        WaitStatus::Exited(_, 0) => match std::fs::read_to_string(verdict) {
            Err(_) => Ended::Done(Ok(())),
            Ok(said) => match said.strip_prefix('E') {
                Some(error) => Ended::Done(Err(error.to_owned())),
                None => Ended::Broken(said),
            },
        },
        other => Ended::Broken(format!("{other:?}")),
    }
}

fn hear(kind: Kind, what: &str) -> io::Result<()> {
    let Some((plan, machine)) = PLAN.get() else {
        return Ok(());
    };
    if kind == Kind::Wait {
        if *plan == Plan::Tell {
            talk::say(b'W');
        }
        return Ok(());
    }
    let number = page().count.fetch_add(1, SeqCst) + 1;
    let noted = KINDS
        .iter()
        .position(|known| *known == kind)
        .expect("a kind");
    if let Some(place) = page().kinds.get(number - 1) {
        place.store(noted as u8, SeqCst);
    }
    match *plan {
        Plan::Mark => mark(&format!("{kind:?}")),
        // SAFETY: the end that is wanted here: no destructor runs.
        Plan::Die(at) if at == number => unsafe { libc::_exit(DIED) },
        Plan::DieWithin(at) if at == number => {
            add_rule(machine, what, Outcome::Kill(Moment::During));
        }
        Plan::Fail(at, code) | Plan::FailAfter(at, code) if at == number => match (kind, plan) {
            (Kind::Driver, Plan::Fail(..)) => add_rule(machine, what, Outcome::Return(code as u32)),
            (Kind::Driver, _) => add_rule(machine, what, Outcome::ReturnAfter(code as u32)),
            _ => return Err(io::Error::from_raw_os_error(code)),
        },
        Plan::Watch if crate::is_told_apart(&effects(), number) => {
            talk::say(b'S');
            talk::wait();
        }
        // The other process counts its effects in the same page, so the number may come again.
        Plan::Stop(at) if at == number && !HAS_STOPPED.swap(true, SeqCst) => {
            talk::say(b'S');
            talk::wait();
        }
        _ => {}
    }
    Ok(())
}

/// Two pipes between a parent and its children, which all of them have open.
pub mod talk {
    use nix::unistd::Pid;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::sync::OnceLock;

    static PIPES: OnceLock<[i32; 4]> = OnceLock::new();

    pub fn open() {
        let mut ends = [0; 4];
        for pair in ends.chunks_exact_mut(2) {
            // SAFETY: the call fills two numbers. Programs that the core starts do not inherit them.
            let made = unsafe { libc::pipe2(pair.as_mut_ptr(), libc::O_CLOEXEC) };
            assert_eq!(made, 0);
        }
        // SAFETY: takes numbers alone. The parent looks without waiting.
        unsafe { libc::fcntl(ends[0], libc::F_SETFL, libc::O_NONBLOCK) };
        PIPES.set(ends).expect("opened once");
    }

    fn write(end: usize, byte: u8) {
        // SAFETY: writes a byte of a live local.
        unsafe {
            libc::write(
                PIPES.get().expect("pipes")[end],
                (&raw const byte).cast(),
                1,
            )
        };
    }

    fn read(end: usize) -> Option<u8> {
        let mut byte = 0u8;
        // SAFETY: reads a byte into a live local.
        let read =
            unsafe { libc::read(PIPES.get().expect("pipes")[end], (&raw mut byte).cast(), 1) };
        (read == 1).then_some(byte)
    }

    /// Says something to the parent.
    pub fn say(byte: u8) {
        write(1, byte);
    }

    /// Waits until one of these children says something or ends. Returns what it said.
    pub fn heard(children: &[Pid]) -> Option<u8> {
        let ends: Vec<OwnedFd> = children.iter().map(|child| end_of(*child)).collect();
        let pipe = PIPES.get().expect("pipes")[0];
        let all = ends.iter().map(AsRawFd::as_raw_fd).chain([pipe]);
        let mut fds: Vec<libc::pollfd> = all
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        // SAFETY: so many live structs. The alarm of a child ends the wait.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
        read(0)
    }

    /// Returns a descriptor that can be read once a child has ended.
    fn end_of(child: Pid) -> OwnedFd {
        // SAFETY: the call takes numbers, and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.as_raw(), 0) };
        assert!(fd >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new, so nobody else owns it.
        unsafe { OwnedFd::from_raw_fd(fd as i32) }
    }

    pub fn drain() {
        while read(0).is_some() {}
    }

    /// Tells a child to go on.
    pub fn tell() {
        write(3, b'g');
    }

    pub fn wait() {
        read(2);
    }
}

fn mark(name: &str) {
    let path = format!("{}/{name}\0", crate::calls::MARKS);
    // SAFETY: the text ends with a null byte and lives until the end of the call.
    unsafe { libc::access(path.as_ptr().cast(), libc::F_OK) };
}

fn add_rule(machine: &Path, call: &str, outcome: Outcome) {
    fault::add(machine, Rule::nth(call, 1, outcome)).expect("a rule");
}
