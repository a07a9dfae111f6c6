//! A file system whose server answers no more: just enough of FUSE's protocol (`linux/fuse.h`) that a
//! file can be opened before that.

use crate::prelude::*;
use crate::process::Killed;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{ForkResult, Pid};
use std::cell::Cell;
use std::collections::HashMap;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

/// So long a request waits for its answer; then it gets an error. The test has failed unless whoever
/// asked was killed before.
const LIMIT: Duration = Duration::from_secs(30);

/// A mounted file system, gone when dropped. Each name in it is a file. Its server is a process of its
/// own: one that waits for itself could not even be killed.
pub struct Fuse {
    /// Its mount point.
    at: Vec<PathBuf>,
    shared: &'static Shared,
    server: Pid,
    /// The thread's, before `hang`.
    group: Cell<Option<u32>>,
    home: Option<TempDir>,
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
    /// An error where this machine has no FUSE.
    pub fn new(at: &Path) -> Result<Fuse, &'static str> {
        let mut options = File::options();
        // A request that is interrupted before it is read has gone.
        options.custom_flags(libc::O_NONBLOCK);
        let device = options.read(true).write(true).open("/dev/fuse");
        let device = device.map_err(|_| "/dev/fuse cannot be opened")?;
        std::fs::create_dir_all(at).unwrap();
        let fd = device.as_raw_fd();
        let options = format!("fd={fd},rootmode=40755,user_id=0,group_id=0,allow_other");
        let (fs, none) = (Some("fuse"), MsFlags::empty());
        mount(Some("hung"), at, fs, none, Some(&*options)).unwrap();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
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
        Ok(Fuse {
            at: vec![at.to_owned()],
            shared,
            server,
            group: Cell::default(),
            home: None,
        })
    }

    /// Away from `/dev`, which engines walk through.
    pub fn apart() -> Result<Fuse, &'static str> {
        let home = TempDir::with_prefix("runmig-hung-").unwrap();
        let mut fuse = Fuse::new(home.path())?;
        fuse.home = Some(home);
        Ok(fuse)
    }

    /// The same file system over another folder. Before `hang`.
    pub fn cover(&mut self, folder: &Path) {
        let mut mount = Command::new("mount");
        super::said(mount.arg("--bind").arg(&self.at[0]).arg(folder)).ok();
        self.at.push(folder.to_owned());
    }

    /// From now on this thread and the programs that it starts get no answer, until this is dropped.
    pub fn hang(&self) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let group = 1_000_000 + std::process::id() * 16 % 1_000_000 + NEXT.fetch_add(1, SeqCst);
        let before = nix::unistd::getegid().as_raw();
        self.group.set(Some(self.group.get().unwrap_or(before)));
        set_group(group).unwrap();
        self.shared.hangs_for.store(group, SeqCst);
    }

    /// How often an answer was waited for in vain.
    pub fn asked(&self) -> u32 {
        self.shared.asked.load(SeqCst)
    }

    /// No request has waited for `LIMIT` without a kill.
    #[track_caller]
    pub fn nobody_was_stuck(&self) {
        let gave_up = self.shared.gave_up.load(SeqCst);
        assert!(!gave_up, "somebody waited for {LIMIT:?}");
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // Waiting callers get an error when the server's device is closed.
        let _ = nix::sys::signal::kill(self.server, nix::sys::signal::Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(self.server, None);
        for at in self.at.iter().rev() {
            let _ = umount2(at, MntFlags::MNT_DETACH);
        }
        if let Some(group) = self.group.get() {
            let _ = set_group(group);
        }
    }
}

/// Sets the group ids of the calling thread.
fn set_group(group: u32) -> nix::Result<()> {
    // SAFETY: numbers only; the call itself changes this thread alone.
    let status = unsafe { libc::syscall(libc::SYS_setresgid, group, group, group) };
    nix::errno::Errno::result(status).map(drop)
}

/// A process that has a file on a hung file system open.
pub struct Holder {
    child: Killed,
    fuse: Fuse,
}

impl Holder {
    /// An error where this machine has no FUSE.
    pub fn new() -> Result<Holder, &'static str> {
        let fuse = Fuse::apart()?;
        let file = File::open(fuse.at[0].join("file")).unwrap();
        let mut sleep = Command::new("sleep");
        sleep.arg("infinity").stdin(Stdio::from(file));
        let child = Killed(sleep.spawn().unwrap());
        fuse.hang();
        Ok(Holder { child, fuse })
    }

    /// It lives, and its file system has got no request.
    #[track_caller]
    pub fn was_left_alone(&self) {
        assert_eq!(self.fuse.asked(), 0, "the hung file system was asked");
        assert!(super::process::lives(self.child.0.id() as i32));
    }
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

/// Until it is killed.
fn serve(mut device: File, shared: &Shared) {
    let mut buffer = vec![0; 1 << 17];
    let mut waiting: HashMap<[u8; 8], Waiting> = HashMap::new();
    loop {
        let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::from(100u8));
        let long = |w: &Waiting| w.since.elapsed() > LIMIT;
        for (unique, gone) in waiting.extract_if(|_, w| long(w)) {
            if !gone.is_killed {
                shared.gave_up.store(true, SeqCst);
            }
            reply(&mut device, unique, Err(libc::EIO));
        }
        let Ok(length) = device.read(&mut buffer) else {
            continue;
        };
        assert!(length >= 40);
        let number = |at: usize| u32::from_ne_bytes(buffer[at..at + 4].try_into().unwrap());
        let unique = |at: usize| -> [u8; 8] { buffer[at..at + 8].try_into().unwrap() };
        let (opcode, group) = (number(4), number(28));
        let node = u64::from_ne_bytes(buffer[16..24].try_into().unwrap());
        // The kernel lets a request that was read wait on all the same.
        if opcode == INTERRUPT
            && let Some(waiting) = waiting.get_mut(&unique(40))
        {
            waiting.is_killed = true;
        }
        if matches!(opcode, FORGET | BATCH_FORGET | INTERRUPT) {
            continue;
        }
        let hangs_for = shared.hangs_for.load(SeqCst);
        // A close is answered: in an exec that holds up all who look at the process.
        if hangs_for != 0 && hangs_for == group && !matches!(opcode, RELEASE | FLUSH) {
            shared.asked.fetch_add(1, SeqCst);
            let (since, is_killed) = (Instant::now(), false);
            waiting.insert(unique(8), Waiting { since, is_killed });
            continue;
        }
        let answer = answer(opcode, node).ok_or(libc::ENOSYS);
        reply(&mut device, unique(8), answer);
    }
}

/// A request without an answer.
struct Waiting {
    since: Instant,
    is_killed: bool,
}

fn reply(device: &mut File, unique: [u8; 8], answer: Result<Vec<u8>, i32>) {
    let (error, body) = match answer {
        Ok(body) => (0, body),
        Err(errno) => (-errno, Vec::new()),
    };
    let size = u32::try_from(16 + body.len()).unwrap();
    let head = [&size.to_ne_bytes()[..], &error.to_ne_bytes(), &unique].concat();
    let _ = device.write(&[&head[..], &body].concat());
}

fn answer(opcode: u32, node: u64) -> Option<Vec<u8>> {
    let numbers = |all: &[u64]| Vec::from_iter(all.iter().flat_map(|n| n.to_ne_bytes()));
    let small = |all: &[u32]| Vec::from_iter(all.iter().flat_map(|n| n.to_ne_bytes()));
    // Node, size, blocks, three times, their nanoseconds; mode, links, owner, device, block size, flags.
    let attributes = |node: u64| {
        let mode = match node {
            1 => libc::S_IFDIR | 0o755,
            _ => libc::S_IFREG | 0o644,
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
