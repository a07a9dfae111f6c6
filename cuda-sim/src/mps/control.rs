//! The control program as a user's tool: it sends commands to a daemon.

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::NO_DAEMON;
use crate::protocol::{self, CONTROL, PRIVILEGED, Reply, Request};

/// Sends each line of standard input and prints the answer. A refused command is no error.
pub fn run(pipes: &Path) -> io::Result<()> {
    connect(pipes)?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let stream = connect(pipes)?;
        protocol::send(&stream, &Request::Command(line))?;
        match protocol::receive(&mut BufReader::new(&stream)) {
            Ok(Some(Reply::Text(text))) => print!("{text}"),
            // The daemon has ended.
            _ => break,
        }
    }
    Ok(())
}

/// Connects to the socket with the most rights that lets this process in.
fn connect(pipes: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(pipes.join(PRIVILEGED))
        .or_else(|_| UnixStream::connect(pipes.join(CONTROL)))
        .map_err(|_| io::Error::other(NO_DAEMON))
}
