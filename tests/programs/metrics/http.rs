//! The endpoint without a server: a connection is standard input and output of a process.

use super::*;
use std::io::Read;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use testkit::prelude::*;

/// One process with its connection.
struct Connection {
    stream: UnixStream,
    child: Child,
}

struct Answer {
    head: String,
    body: String,
}

impl Answer {
    fn status(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn connect(setup: &Setup) -> Connection {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let limit = Some(Duration::from_secs(60));
    ours.set_read_timeout(limit).unwrap();
    let [input, output] = [theirs.try_clone().unwrap(), theirs].map(OwnedFd::from);
    let mut migctl = setup.plain(&setup.program("migctl"));
    migctl
        .args(["metrics", "--http"])
        .stdin(input)
        .stdout(output);
    let child = migctl.stderr(Stdio::piped()).spawn().unwrap();
    let stream = ours;
    Connection { stream, child }
}

impl Connection {
    /// Returns the answer, after the process has ended well and said nothing else.
    fn answer(mut self) -> Answer {
        let mut text = String::new();
        self.stream.read_to_string(&mut text).unwrap();
        drop(self.stream);
        let ended = self.child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let [head, body] = [head, body].map(str::to_owned);
        Answer { head, body }
    }
}

fn ask(setup: &Setup, request: &[u8]) -> Answer {
    let mut connection = connect(setup);
    connection.stream.write_all(request).unwrap();
    connection.answer()
}

#[test]
fn answers_get_and_head() {
    let setup = setup();
    create(&setup, "web", "main", SLICE);
    let get = b"GET /metrics?x HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text\r\n\r\n";
    let text = ask(&setup, get);
    assert_eq!(text.status(), "HTTP/1.1 200 OK");
    for (name, value) in [
        ("Connection", "close"),
        ("Content-Type", "text/plain; version=0.0.4; charset=utf-8"),
        ("Content-Length", &*text.body.len().to_string()),
    ] {
        assert_eq!(text.header(name), Some(value));
    }
    Exposition::read(&text.body).has("runmig_lease_info", &[("pod", "web")], 1.0);
    let head = ask(&setup, b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.status(), head.body.as_str()), ("HTTP/1.1 200 OK", ""));
    let length: u64 = head.header("Content-Length").unwrap().parse().unwrap();
    assert!(length > 1000);
}

/// Failure: a request to the endpoint that is not HTTP/1, too long, too slow or half
#[test]
fn refuses_other_requests() {
    let setup = setup();
    let x = |times| "x".repeat(times);
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", x(1 << 20));
    let body = "POST /metrics HTTP/1.1\r\nContent-Length: 100000\r\n\r\n";
    let body = format!("{body}{}", x(100_000));
    for (request, status) in testkit::rows! {
        "GET /other HTTP/1.1\r\n\r\n" => "HTTP/1.1 404 Not Found";
        "GET / HTTP/1.1\r\n\r\n" => "HTTP/1.1 404 Not Found";
        "GET /metrics\r\n" => "HTTP/1.1 400 Bad Request";
        "GET /metrics HTTP/1.1\r\nhalf" => "HTTP/1.1 400 Bad Request";
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" => "HTTP/1.1 505 HTTP Version Not Supported";
        &long => "HTTP/1.1 431 Request Header Fields Too Large";
        &body => "HTTP/1.1 405 Method Not Allowed";
        "" => "";
    } {
        let mut connection = connect(&setup);
        connection.stream.write_all(request.as_bytes()).unwrap();
        connection.stream.shutdown(Shutdown::Write).unwrap();
        let answer = connection.answer();
        let start: String = request.chars().take(40).collect();
        assert_eq!(answer.status(), status, "{start}");
    }
}

/// A client that sends a byte now and then holds no process for ever.
#[test]
fn slow_request_ends() {
    let setup = setup();
    let connection = connect(&setup);
    let mut slow = connection.stream.try_clone().unwrap();
    let dripping = std::thread::spawn(move || {
        // The end of the connection ends this.
        while slow.write_all(b"G").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(connection.answer().status(), "HTTP/1.1 408 Request Timeout");
    dripping.join().unwrap();
}

#[test]
fn client_gone_early_is_no_error() {
    let setup = setup();
    let Connection { mut stream, child } = connect(&setup);
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    drop(stream);
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
}

/// Prometheus tells how long it waits. The ledger's part arrives before that.
/// Failure: the driver is slower than a scrape
#[test]
fn slow_driver_leaves_ledger_in_time() {
    let setup = setup();
    create(&setup, "web", "main", SLICE);
    setup.slow("nvmlDeviceGetCount_v2", "600s");
    let request = b"GET /metrics HTTP/1.1\r\nX-Prometheus-Scrape-Timeout-Seconds: 1\r\n\r\n";
    let answer = ask(&setup, request);
    assert_eq!(answer.status(), "HTTP/1.1 200 OK");
    let seen = Exposition::read(&answer.body);
    seen.has("runmig_driver_up", &[], 0.0);
    seen.has("runmig_lease_info", &[("pod", "web")], 1.0);
    // The scrape's time bounds the driver's.
    let seconds = seen.value("runmig_exposition_seconds", &[]);
    assert!(seconds < 8.0, "{seconds}");
}
