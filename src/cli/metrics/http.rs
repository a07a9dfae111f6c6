//! `migctl metrics --http`: one HTTP request on standard input, its answer on standard output, then the end. systemd holds
//! the socket and starts migctl for each connection, so no process of runmig listens. Every wait ends, and every size has
//! a limit.

use super::exposition::exposition;
use super::facts::Facts;
use super::{driver, text};
use crate::cli::driver::is_ready;
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::unistd::{read, write};
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The longest wait for a request, for a reader of the answer, and for its end of the connection.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_secs(1);

/// The most bytes of a head, and the most headers in it.
const LONGEST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// The most bytes that a client may send after its head before they are no longer read.
const MOST_AFTER: usize = 4 << 20;
/// A part that a socket or a pipe takes at once if it is ready at all.
const PART: usize = 4096;

/// Without metrics, the answer is a status and what is the matter.
type Answer<T> = std::result::Result<T, &'static str>;

const BAD: &str = "400 Bad Request: this is not a whole request of HTTP";
const TOO_LONG: &str = "431 Request Header Fields Too Large: send at most 16 KiB and 64 headers";

struct Request {
    method: String,
    /// The path without its query.
    path: String,
    /// The time that Prometheus waits for the answer.
    scrape_timeout: Option<Duration>,
}

/// Answers one request. A client that goes early is no error.
pub fn run(config: &Config) -> Result<i32> {
    let begun = Instant::now();
    let (answer, is_head) = match receive(begun + REQUEST_LIMIT) {
        Ok(Some(request)) => (answer(config, &request, begun), request.method == "HEAD"),
        Err(told) => (Err(told), false),
        // A connection without a request, as of a port scan.
        Ok(None) => return Ok(0),
    };
    let (status, content_type, body) = match answer {
        Ok(metrics) => ("200 OK", text::CONTENT_TYPE, metrics),
        Err(told) => {
            let (status, _) = told.split_once(": ").unwrap_or((told, ""));
            (status, "text/plain; charset=utf-8", format!("{told}\n"))
        }
    };
    let length = body.len();
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    // The answer to a HEAD has the length of a body alone.
    if !is_head {
        bytes.push_str(&body);
    }
    send(bytes.as_bytes(), Instant::now() + ANSWER_LIMIT);
    end(Instant::now() + END_LIMIT);
    Ok(0)
}

/// Returns an exposition, or else a status and what is the matter.
fn answer(config: &Config, request: &Request, begun: Instant) -> Answer<String> {
    match (request.path.as_str(), request.method.as_str()) {
        ("/metrics", "GET" | "HEAD") => {
            let limit = driver_limit(request.scrape_timeout, begun.elapsed());
            let facts = Facts::now(config, Some(limit));
            Ok(exposition(&facts, &config.policy).text())
        }
        ("/metrics", _) => Err("405 Method Not Allowed: use GET or HEAD"),
        _ => Err("404 Not Found: the metrics are at /metrics"),
    }
}

/// Returns the time for the driver. The rest of the scrape's is for the ledger and the way back.
fn driver_limit(scrape: Option<Duration>, spent: Duration) -> Duration {
    let scrape = scrape.unwrap_or(driver::limit().mul_f64(4.0 / 3.0));
    scrape
        .mul_f64(0.75)
        .saturating_sub(spent)
        .min(driver::limit())
}

/// Reads a request: none if the client sent nothing. The error is the answer.
fn receive(end: Instant) -> Answer<Option<Request>> {
    let mut head = Vec::new();
    loop {
        match next(end) {
            Some(part) if !part.is_empty() => head.extend(part),
            _ if head.is_empty() => return Ok(None),
            Some(_) => return Err(BAD),
            None => return Err("408 Request Timeout: send the request within 5 s"),
        }
        if let Some(request) = parse(&head)? {
            return Ok(Some(request));
        }
        if head.len() > LONGEST_HEAD {
            return Err(TOO_LONG);
        }
    }
}

/// Reads a head: none if it is not complete.
fn parse(head: &[u8]) -> Answer<Option<Request>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_LONG),
        Err(httparse::Error::Version) => return Err("505 HTTP Version Not Supported: use HTTP/1"),
        Err(_) => return Err(BAD),
    }
    let path = request.path.and_then(|path| path.split('?').next());
    let is_timeout = |name: &str| name.eq_ignore_ascii_case("X-Prometheus-Scrape-Timeout-Seconds");
    let mut headers = request.headers.iter();
    let timeout = headers.find(|header| is_timeout(header.name));
    Ok(Some(Request {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.unwrap_or_default().to_owned(),
        scrape_timeout: timeout.and_then(|header| seconds(header.value)),
    }))
}

/// Returns a time. A value that is no time counts as absent.
fn seconds(value: &[u8]) -> Option<Duration> {
    let number = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
    let time = Duration::try_from_secs_f64(number).ok()?;
    Some(time).filter(|time| !time.is_zero())
}

/// Reads some bytes: none of them at the end of the connection, and nothing at the end of the time.
fn next(end: Instant) -> Option<Vec<u8>> {
    let (input, mut buffer) = (std::io::stdin(), vec![0; PART]);
    while is_ready(input.as_fd(), PollFlags::POLLIN, end) {
        match read(input.as_fd(), &mut buffer) {
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            read => buffer.truncate(read.unwrap_or(0)),
        }
        return Some(buffer);
    }
    None
}

/// Sends an answer. A client that has gone, or reads too slowly, gets no more of it.
fn send(mut bytes: &[u8], end: Instant) {
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
fn end(end: Instant) {
    if let Ok(output) = std::io::stdout().as_fd().try_clone_to_owned() {
        // Standard output that is no socket ends with this process.
        let _ = TcpStream::from(output).shutdown(Shutdown::Write);
    }
    let mut read = 0;
    while let Some(part) = next(end).filter(|part| !part.is_empty() && read < MOST_AFTER) {
        read += part.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_request_of_prometheus() {
        let head = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: */*\r\n\
                     x-prometheus-scrape-timeout-seconds: 2.5\r\n\r\nbody";
        let request = parse(head).unwrap().unwrap();
        assert_eq!((&*request.method, &*request.path), ("GET", "/metrics"));
        assert_eq!(request.scrape_timeout, Some(Duration::from_millis(2500)));
        assert!(parse(&head[..60]).unwrap().is_none());
        for odd in ["NaN", "-1", "0", "1e400", "soon"] {
            assert_eq!(seconds(odd.as_bytes()), None, "{odd}");
        }
    }
}
