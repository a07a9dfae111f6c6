//! A file system whose server answers no more: just enough of FUSE's protocol (`linux/fuse.h`) that a
//! file can be opened before that.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{ForkResult, Pid};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// So long nobody is answered; then whoever asked gets an error, and the test has failed.
const LIMIT: Duration = Duration::from_secs(30);

/// A mounted file system, gone when dropped. Each name in it is a file. Its server is a process of its
/// own: one that waits for itself could not even be killed.
pub struct Fuse {
    at: PathBuf,
    shared: &'static Shared,
    server: Pid,
}

/// In memory that the server shares.
struct Shared {
    /// The group whose requests get no answer; 0 for nobody's. Others on the machine, who look at all
    /// that is open, are not to wait for a test.
    hangs_for: AtomicU32,
    asked: AtomicU32,
    gave_up: AtomicBool,
}

impl Fuse {
    /// None where this machine has no FUSE.
    pub fn new(at: &Path) -> Option<Fuse> {
        let mut options = File::options();
        options.read(true).write(true);
        // What is interrupted before it is read is not there any more.
        let device = match options.custom_flags(libc::O_NONBLOCK).open("/dev/fuse") {
            Ok(device) => device,
            Err(e) => {
                super::skip(&format!("/dev/fuse: {e}"));
                return None;
            }
        };
        std::fs::create_dir_all(at).unwrap();
        let fd = device.as_raw_fd();
        let options = format!("fd={fd},rootmode=40755,user_id=0,group_id=0,allow_other");
        mount(at, &options);
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        let length = size_of::<Shared>();
        // SAFETY: a new mapping, never taken away, that is as long; zeros are a value of its type.
        let shared: &'static Shared = unsafe {
            let start = libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            &*start.cast()
        };
        // SAFETY: the child makes system calls, and takes memory from glibc, which allows that.
        let server = match unsafe { nix::unistd::fork() }.unwrap() {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                // SAFETY: the descriptors of other tests are not for this process.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::dup2(fd, 3);
                    libc::syscall(libc::SYS_close_range, 4, u32::MAX, 0);
                    serve(File::from_raw_fd(3), shared);
                    libc::_exit(0)
                }
            }
        };
        Some(Fuse {
            at: at.to_owned(),
            shared,
            server,
        })
    }

    /// From now on the programs that this thread starts get no answer.
    pub fn hang(&self) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let group = 1_000_000 + std::process::id() * 16 % 1_000_000 + NEXT.fetch_add(1, SeqCst);
        // SAFETY: numbers only; the call itself changes this thread alone.
        let status = unsafe { libc::syscall(libc::SYS_setresgid, group, group, group) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
        self.shared.hangs_for.store(group, SeqCst);
    }

    /// How often an answer was waited for in vain.
    pub fn asked(&self) -> u32 {
        self.shared.asked.load(SeqCst)
    }

    /// Nobody has waited until the server was gone.
    #[track_caller]
    pub fn nobody_was_stuck(&self) {
        let gave_up = self.shared.gave_up.load(SeqCst);
        assert!(!gave_up, "somebody waited for {LIMIT:?}");
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // Whoever waits gets an error when the server's device is closed.
        let _ = nix::sys::signal::kill(self.server, nix::sys::signal::Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(self.server, None);
        let at = c_string(&self.at);
        // SAFETY: a string that ends with a zero.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    }
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn mount(at: &Path, options: &str) {
    let options = CString::new(options).unwrap();
    let (at, data) = (c_string(at), options.as_ptr().cast());
    // SAFETY: strings that end with a zero.
    let status = unsafe { libc::mount(c"hung".as_ptr(), at.as_ptr(), c"fuse".as_ptr(), 0, data) };
    assert_eq!(status, 0, "mount: {}", std::io::Error::last_os_error());
}

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Until it is killed, or somebody was not answered for too long.
fn serve(mut device: File, shared: &Shared) {
    let mut buffer = vec![0; 1 << 17];
    let mut waits_since: Option<Instant> = None;
    loop {
        let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::from(100u8));
        if waits_since.is_some_and(|since| since.elapsed() > LIMIT) {
            return shared.gave_up.store(true, SeqCst);
        }
        let Ok(length) = device.read(&mut buffer) else {
            continue;
        };
        let number = |at: usize| u32::from_ne_bytes(buffer[at..at + 4].try_into().unwrap());
        let (opcode, unique, group) = (number(4), buffer[8..16].to_vec(), number(28));
        let node = u64::from_ne_bytes(buffer[16..24].try_into().unwrap());
        assert!(length >= 40);
        if matches!(opcode, FORGET | BATCH_FORGET | INTERRUPT) {
            continue;
        }
        let hangs_for = shared.hangs_for.load(SeqCst);
        // Who closes a file is answered: in an exec that holds up all who look at the process.
        if hangs_for != 0 && hangs_for == group && !matches!(opcode, RELEASE | FLUSH) {
            shared.asked.fetch_add(1, SeqCst);
            waits_since.get_or_insert_with(Instant::now);
            continue;
        }
        let answer = answer(opcode, node);
        let (error, body) = match &answer {
            Some(body) => (0, body.as_slice()),
            None => (-libc::ENOSYS, [].as_slice()),
        };
        let size = u32::try_from(16 + body.len()).unwrap();
        let head = [&size.to_ne_bytes()[..], &error.to_ne_bytes(), &unique].concat();
        let _ = device.write(&[&head, body].concat());
    }
}

fn answer(opcode: u32, node: u64) -> Option<Vec<u8>> {
    let numbers = |all: &[u64]| {
        all.iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect::<Vec<u8>>()
    };
    let small = |all: &[u32]| {
        all.iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect::<Vec<u8>>()
    };
    // Node, size, blocks, three times, their nanoseconds; mode, links, owner, device, block size, flags.
    let attributes = |node: u64| {
        let mode = if node == 1 {
            libc::S_IFDIR | 0o755
        } else {
            libc::S_IFREG | 0o644
        };
        let rest = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
        [numbers(&[node, 0, 0, 0, 0, 0]), small(&rest)].concat()
    };
    Some(match opcode {
        INIT => small(&[7, 31, 0, 0, 0, 4096, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        // Valid for no time, so that every look asks again.
        LOOKUP => [numbers(&[2, 1, 0, 0, 0]), attributes(2)].concat(),
        GETATTR => [numbers(&[0, 0]), attributes(node)].concat(),
        OPEN => numbers(&[0, 0]),
        RELEASE | FLUSH => Vec::new(),
        _ => return None,
    })
}
