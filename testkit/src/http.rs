//! As much of HTTP as it takes to talk to an engine's socket: one request a connection.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    #[track_caller]
    pub fn ok(self) -> Answer {
        assert!(self.status < 300, "{}: {}", self.status, self.text());
        self
    }
}

/// In HTTP/1.0 an answer ends with its connection.
pub fn call(socket: &Path, method: &str, path: &str, body: &[u8]) -> std::io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    let end = all.windows(4).position(|w| w == b"\r\n\r\n");
    let end = end.ok_or_else(|| std::io::Error::other("no end of the header"))?;
    let status = String::from_utf8_lossy(&all[..end])
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| std::io::Error::other("no status"))?;
    let body = all.split_off(end + 4);
    Ok(Answer { status, body })
}
