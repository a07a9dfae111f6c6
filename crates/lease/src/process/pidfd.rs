//! Processes by descriptor: a descriptor names its process even if the number is used again.

use crate::effect::{self, Kind};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A process, whatever becomes of its number.
#[derive(Debug)]
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has this number now.
    ///
    /// # Errors
    /// No process has it (ESRCH), or the kernel is older than 5.3.
    pub(crate) fn open(pid: i32) -> io::Result<PidFd> {
        // SAFETY: the call takes numbers alone.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match i32::try_from(fd) {
            // SAFETY: the descriptor was just opened, and nothing else owns it.
            Ok(fd @ 0..) => Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends SIGKILL. A process that has ended is no error.
    pub(crate) fn kill(&self) -> io::Result<()> {
        effect::effect(Kind::Kill, "")?;
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and the kernel takes a null pointer for no information.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                libc::SIGKILL,
                no_info,
                0,
            )
        };
        match io::Error::last_os_error() {
            _ if sent == 0 => Ok(()),
            e if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            e => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn kills_process_once() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = PidFd::open(child.id() as i32).unwrap();
        process.kill().unwrap();
        child.wait().unwrap();
        process.kill().unwrap();
    }
}
