//! The calls of libc that the standard library has no safe form of.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The process at the other end of a socket, as this process's namespaces number it.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub pid: u32,
    pub uid: u32,
}

/// Returns the process that connected a socket.
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `credentials` may be written to, and `length` is its size.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer {
        pid: credentials.pid.unsigned_abs(),
        uid: credentials.uid,
    })
}

/// Returns whether the other end of a socket or pipe is closed.
pub fn is_hung_up(file: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd {
        fd: file.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: `poll` is one entry, which may be written to.
    unsafe { libc::poll(&raw mut poll, 1, 0) };
    poll.revents & (libc::POLLHUP | libc::POLLERR) != 0
}

/// Sends all bytes. A closed socket is an error and raises no SIGPIPE: the process is the client's.
pub fn send_all(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length are those of `bytes`.
        let sent = unsafe {
            libc::send(
                stream.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Makes a FIFO.
pub fn make_fifo(path: &Path, mode: u32) -> io::Result<()> {
    let text = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `text` is a C string that outlives the call.
    match unsafe { libc::mkfifo(text.as_ptr(), mode) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a process a signal.
pub fn kill(pid: u32, signal: i32) {
    // SAFETY: a signal touches no memory of this process.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}
