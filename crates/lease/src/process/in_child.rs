//! Makes system calls that may never return. A file system whose server is gone blocks a call, and the
//! kernel lets no signal end some of those calls. A child makes the calls, so this process never waits for
//! them.

use super::{Host, dir, read_stat};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, Pid};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

pub(super) enum Look {
    /// Asks for the kernel's own knowledge of a file, without a request to the file's server. On NFS and 9p
    /// the path there may need a request all the same.
    Known(CString),
    /// Asks for the same, but the file's server must answer.
    Asked(CString),
    /// Asks whether two threads share one table of descriptors.
    SameFiles(i32, i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    File(File),
    /// The result of a comparison.
    Same(bool),
    Failed(Errno),
    /// The server did not answer in time.
    Unanswered,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    pub mode: u32,
    pub dev: u64,
    pub ino: u64,
    pub rdev: u64,
}

/// The longest wait for one blocked call.
const PATIENCE: Duration = Duration::from_millis(250);
/// The time that this process may still wait for blocked calls in total, in milliseconds. Blocked calls
/// delay one call of runmig by no more than this.
static LEFT: AtomicU64 = AtomicU64::new(BUDGET);
const BUDGET: u64 = 700;
/// The time between two looks at the child.
const STEP: Duration = Duration::from_millis(10);

/// Gives the next piece of work its own time for blocked calls. A process that never ends would lose it for good.
pub fn renew_patience() {
    LEFT.store(BUDGET, SeqCst);
}

/// The result of one look. Only the child writes it, until the child has ended.
#[derive(Default)]
struct Slot {
    /// The state; 0 until the other fields are valid.
    state: AtomicU32,
    errno: AtomicU32,
    mode: AtomicU32,
    dev: AtomicU64,
    ino: AtomicU64,
    rdev: AtomicU64,
}

const FILE: u32 = 1;
const SAME: u32 = 2;
const DIFFERENT: u32 = 3;
const FAILED: u32 = 4;

/// Makes all of these looks. It fails if it cannot fork a child.
pub(super) fn look(looks: &[Look]) -> io::Result<Vec<Seen>> {
    if looks.is_empty() {
        return Ok(Vec::new());
    }
    let slots = Shared::new(looks.len())?;
    let mut seen = Vec::with_capacity(looks.len());
    while seen.len() < looks.len() {
        let from = seen.len();
        run(&looks[from..], &slots.all()[from..])?;
        let done = slots.all()[from..].iter().map_while(Slot::seen);
        seen.extend(done);
        // The child was blocked at this look, or ended there.
        if seen.len() < looks.len() {
            seen.push(Seen::Unanswered);
        }
    }
    Ok(seen)
}

/// Runs the looks in a child, which is no effect. Returns when the child has ended, or has been blocked for too long.
#[allow(clippy::disallowed_methods)]
fn run(looks: &[Look], slots: &[Slot]) -> io::Result<()> {
    let (ends, end) = io::pipe()?;
    // The child closes this process's files, which include locks and the engine's pipes.
    let mut ours = super::descriptors()?;
    ours.retain(|fd| *fd != end.as_raw_fd());
    // SAFETY: until it exits, the child makes only system calls, on memory that the parent prepared. So
    // threads that a library may have started do no harm.
    let child = match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
            for fd in ours {
                // SAFETY: the child uses no descriptor but the pipe's any more.
                unsafe { libc::close(fd) };
            }
            for (look, slot) in looks.iter().zip(slots) {
                look.make(slot);
            }
            // SAFETY: ends the child at once, without the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
    };
    drop(end);
    let mut progress = (0, Instant::now());
    loop {
        let mut fds = [PollFd::new(ends.as_fd(), PollFlags::POLLIN)];
        let step = PollTimeout::try_from(STEP).unwrap_or(PollTimeout::MAX);
        match nix::poll::poll(&mut fds, step) {
            Ok(0) | Err(Errno::EINTR) => {}
            // The child's end of the pipe is closed.
            Ok(_) => break,
            Err(e) => return Err(e.into()),
        }
        let done = progress.0 + made(&slots[progress.0..]);
        if done != progress.0 || !is_blocked(child.as_raw()) {
            progress = (done, Instant::now());
            continue;
        }
        let patience = PATIENCE.min(Duration::from_millis(LEFT.load(SeqCst)));
        let waited = progress.1.elapsed();
        if waited >= patience {
            let spent = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            LEFT.store(LEFT.load(SeqCst).saturating_sub(spent), SeqCst);
            break;
        }
    }
    // A child that cannot be killed ends when its server answers. Then nothing waits for it.
    let _ = kill(child, Signal::SIGKILL);
    reap(child);
    Ok(())
}

/// Waits a moment for a killed child to end.
fn reap(child: Pid) {
    for _ in 0..20 {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(nix::sys::wait::WaitStatus::StillAlive) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => return,
        }
    }
}

fn made(slots: &[Slot]) -> usize {
    slots
        .iter()
        .take_while(|s| s.state.load(SeqCst) != 0)
        .count()
}

/// Returns whether a process waits for an event. A process that waits only for a processor is not blocked.
fn is_blocked(pid: i32) -> bool {
    let stat = read_stat(&Host, &dir(pid)).ok().flatten();
    stat.is_none_or(|stat| stat.state != 'R')
}

impl Look {
    /// Makes the look, in the child.
    fn make(&self, slot: &Slot) {
        let state = match self {
            Look::Known(path) => statx(path, libc::AT_STATX_DONT_SYNC, slot),
            Look::Asked(path) => statx(path, libc::AT_STATX_FORCE_SYNC, slot),
            Look::SameFiles(one, other) => same_files(*one, *other),
        };
        let state = state.unwrap_or_else(|errno| {
            slot.errno.store(errno as u32, SeqCst);
            FAILED
        });
        slot.state.store(state, SeqCst);
    }
}

impl Slot {
    fn seen(&self) -> Option<Seen> {
        match self.state.load(SeqCst) {
            FILE => Some(Seen::File(File {
                mode: self.mode.load(SeqCst),
                dev: self.dev.load(SeqCst),
                ino: self.ino.load(SeqCst),
                rdev: self.rdev.load(SeqCst),
            })),
            SAME => Some(Seen::Same(true)),
            DIFFERENT => Some(Seen::Same(false)),
            FAILED => {
                let errno = self.errno.load(SeqCst) as i32;
                Some(Seen::Failed(Errno::from_raw(errno)))
            }
            _ => None,
        }
    }
}

/// Makes the system call itself. On a kernel without statx, libc's function calls stat instead, and that
/// blocks.
fn statx(path: &CString, sync: i32, slot: &Slot) -> Result<u32, Errno> {
    let flags = sync | libc::AT_NO_AUTOMOUNT;
    let mask = libc::STATX_TYPE | libc::STATX_INO;
    // SAFETY: the struct has only numbers, and all zeros is a valid value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (path, into) = (path.as_ptr(), &raw mut found);
    // SAFETY: the path ends with a zero, and the struct is a live local.
    let status = unsafe { libc::syscall(libc::SYS_statx, libc::AT_FDCWD, path, flags, mask, into) };
    Errno::result(status)?;
    slot.mode.store(u32::from(found.stx_mode), SeqCst);
    let number = |major, minor| libc::makedev(major, minor);
    slot.dev
        .store(number(found.stx_dev_major, found.stx_dev_minor), SeqCst);
    slot.ino.store(found.stx_ino, SeqCst);
    slot.rdev
        .store(number(found.stx_rdev_major, found.stx_rdev_minor), SeqCst);
    Ok(FILE)
}

fn same_files(one: i32, other: i32) -> Result<u32, Errno> {
    const KCMP_FILES: i32 = 2; // include/uapi/linux/kcmp.h
    // SAFETY: the arguments are numbers only.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0, 0) };
    let order = Errno::result(order)?;
    Ok(if order == 0 { SAME } else { DIFFERENT })
}

/// The memory that the child writes and the parent reads.
struct Shared {
    start: *mut libc::c_void,
    slots: usize,
}

impl Shared {
    fn new(slots: usize) -> io::Result<Shared> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        let length = slots * size_of::<Slot>();
        // SAFETY: the call makes a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Shared { start, slots })
    }

    fn all(&self) -> &[Slot] {
        // SAFETY: the mapping has this length, it is aligned to a page, and zeros are a valid slot. Both
        // processes access its contents only by atomic operations.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.slots) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: this is the same mapping, and no reference into it outlives this value.
        unsafe { libc::munmap(self.start, self.slots * size_of::<Slot>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn sees_files_and_failures() {
        let path = |p: &str| CString::new(p).unwrap();
        let own = std::process::id() as i32;
        // It ends with its standard input.
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let looks = [
            Look::Known(path("/dev/null")),
            Look::Asked(path("/nowhere")),
            Look::Asked(path("/")),
            Look::SameFiles(own, nix::unistd::gettid().as_raw()),
            Look::SameFiles(own, child.id() as i32),
        ];
        let seen = look(&looks).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        let [
            Seen::File(null),
            Seen::Failed(Errno::ENOENT),
            Seen::File(_),
            Seen::Same(true),
            Seen::Same(false),
        ] = seen[..]
        else {
            panic!("{seen:?}");
        };
        assert_eq!(null.rdev, libc::makedev(1, 3));
        assert_eq!(null.mode & libc::S_IFMT, libc::S_IFCHR);
        assert!(look(&[]).unwrap().is_empty());
    }

    #[test]
    fn process_that_wants_only_a_processor_is_not_blocked() {
        let busy = ["-c", "while :; do :; done"];
        let mut busy = Command::new("sh").args(busy).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        // It may read its program first.
        while is_blocked(busy.id() as i32) && Instant::now() < end {
            std::thread::yield_now();
        }
        let ran = Instant::now() < end;
        let _ = busy.kill();
        busy.wait().unwrap();
        assert!(ran);
        assert!(is_blocked(i32::MAX));
    }
}
