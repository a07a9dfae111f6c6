//! The connection: standard input and output, which are one socket as a rule. Every wait on it ends.

use super::request::{LONGEST_HEAD, Refused, is_complete};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{read, write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// The most bytes that a client may send after its head before they are no longer read.
const MOST_AFTER: usize = 4 << 20;
/// A part that a socket or a pipe takes at once if it is ready at all.
const PART: usize = 4096;

pub enum Received {
    /// A head, and perhaps a part of what follows.
    Head(Vec<u8>),
    Refused(Refused),
    /// The client ended the connection, or has sent nothing in time.
    Nothing,
}

/// Reads the head of a request.
pub fn receive(end: Instant) -> Received {
    let mut head = Vec::new();
    loop {
        if is_complete(&head) {
            return Received::Head(head);
        }
        if head.len() > LONGEST_HEAD {
            return Received::Refused(Refused::TooLong);
        }
        match next(end) {
            Next::Bytes(bytes) => head.extend(bytes),
            _ if head.is_empty() => return Received::Nothing,
            Next::End => return Received::Refused(Refused::Malformed),
            Next::TooLate => return Received::Refused(Refused::TooSlow),
        }
    }
}

enum Next {
    Bytes(Vec<u8>),
    End,
    TooLate,
}

fn next(end: Instant) -> Next {
    let input = std::io::stdin();
    let mut buffer = vec![0; PART];
    loop {
        if !is_ready(input.as_fd(), PollFlags::POLLIN, end) {
            return Next::TooLate;
        }
        match read(input.as_fd(), &mut buffer) {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Ok(0) | Err(_) => return Next::End,
            Ok(length) => {
                buffer.truncate(length);
                return Next::Bytes(buffer);
            }
        }
    }
}

/// Waits until a descriptor is ready. Returns false at the end of the time.
fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags, end: Instant) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // Rounded up, so that the wait does not become a busy one.
        let left = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        match poll(&mut [PollFd::new(fd, flags)], PollTimeout::from(left)) {
            Err(Errno::EINTR) => {}
            Ok(0) | Err(_) if Instant::now() >= end => return false,
            Ok(0) | Err(_) => {}
            Ok(_) => return true,
        }
    }
}

/// Sends an answer. A client that has gone, or reads too slowly, gets no more of it.
pub fn send(mut bytes: &[u8], end: Instant) {
    let output = std::io::stdout();
    while !bytes.is_empty() && is_ready(output.as_fd(), PollFlags::POLLOUT, end) {
        match write(output.as_fd(), &bytes[..bytes.len().min(PART)]) {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => return,
            Ok(length) => bytes = &bytes[length..],
        }
    }
}

/// Ends the connection. Bytes that nobody has read would take the answer from the client, so the client's end is
/// awaited.
pub fn end(end: Instant) {
    let Ok(output) = std::io::stdout().as_fd().try_clone_to_owned() else {
        return;
    };
    // Standard output that is no socket ends with this process.
    let _ = TcpStream::from(output).shutdown(Shutdown::Write);
    let mut read = 0;
    while let Next::Bytes(bytes) = next(end) {
        read += bytes.len();
        if read > MOST_AFTER {
            return;
        }
    }
}
