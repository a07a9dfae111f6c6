//! The calls of libc that the standard library has no safe form of.

use std::ffi::{CStr, CString, OsStr};
use std::io;
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
