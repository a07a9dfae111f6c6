//! The calls of libc that the standard library has no safe form of.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Makes a character device node.
pub fn make_character_node(path: &Path, mode: u32, major: u32, minor: u32) -> io::Result<()> {
    let text = CString::new(path.as_os_str().as_bytes())?;
    let device = libc::makedev(major, minor);
    // SAFETY: `text` is a C string that outlives the call.
    if unsafe { libc::mknod(text.as_ptr(), libc::S_IFCHR | mode, device) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub fn effective_uid() -> u32 {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns whether a file belongs to the hierarchy of cgroups of version 2.
pub fn is_cgroup2(path: &Path) -> bool {
    let Ok(text) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: all-zero is a value of the struct, which is numbers only.
    let mut info: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `text` is a C string that outlives the call, and `info` may be written to.
    let result = unsafe { libc::statfs(text.as_ptr(), &raw mut info) };
    result == 0 && info.f_type == libc::CGROUP2_SUPER_MAGIC
}

/// Returns the inode of this process's cgroup of version 2, whatever namespace or mount it sees;
/// `None` before Linux 6.13.
pub fn own_cgroup() -> Option<u64> {
    /// `struct pidfd_info` in its first version.
    #[repr(C)]
    struct Info {
        mask: u64,
        cgroup: u64,
        rest: [u64; 6],
    }
    const CGROUP: u64 = 1 << 2;
    /// `PIDFD_GET_INFO`: read and write a struct of this size, number 11 of the type 0xff.
    const GET_INFO: libc::c_ulong = 3 << 30 | (size_of::<Info>() as libc::c_ulong) << 16 | 0xff0b;
    // SAFETY: the call has numbers for arguments and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the descriptor is new, so nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut info = Info {
        mask: CGROUP,
        cgroup: 0,
        rest: [0; 6],
    };
    // SAFETY: `info` may be written to and has the size that the request names.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), GET_INFO, &raw mut info) };
    (result == 0 && info.mask & CGROUP != 0).then_some(info.cgroup)
}

/// Returns the CPU time that this thread has taken.
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` may be written to, and the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

/// Ends this process as a crash of the node's memory would: no destructor, no handler.
pub fn kill_self() -> ! {
    // SAFETY: a signal to ourselves touches no memory.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    // The signal is deadly and cannot be blocked, but it may arrive a moment later.
    loop {
        std::thread::park();
    }
}

/// Lets a program end quietly once nobody reads its output: Rust has a print panic instead.
pub fn end_with_reader() {
    // SAFETY: SIG_DFL installs no handler, so no code of ours runs in one.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// The file that this code was loaded from.
pub fn own_path() -> Option<PathBuf> {
    let here = own_path as fn() -> Option<PathBuf>;
    // SAFETY: all-zero is a valid `Dl_info`, a struct of nullable pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is one of ours and `info` may be written to.
    let found = unsafe { libc::dladdr(here as *const libc::c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the name as a C string for as long as the file is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
