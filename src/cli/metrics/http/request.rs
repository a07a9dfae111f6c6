//! The head of an HTTP request. Everything that is not HTTP/1 is refused.

use std::time::Duration;

/// The most bytes of a head.
pub const LONGEST_HEAD: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Other,
}

#[derive(Debug, PartialEq)]
pub struct Request {
    pub method: Method,
    /// The path without its query.
    pub path: String,
    /// All values of `Accept`, joined.
    pub accept: Option<String>,
    /// The time that Prometheus waits for the answer.
    pub scrape_timeout: Option<Duration>,
}

/// The reason for an answer without metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Malformed,
    Path,
    Method,
    TooSlow,
    TooLong,
    Version,
}

/// Returns whether a head is complete. A request of HTTP/0.9 has one line.
pub fn is_complete(head: &[u8]) -> bool {
    let ends = |end: &[u8]| head.windows(end.len()).any(|part| part == end);
    ends(b"\r\n\r\n")
        || ends(b"\n\n")
        || first_line(head).is_some_and(|line| words(&line).len() < 3)
}

fn first_line(head: &[u8]) -> Option<String> {
    let end = head.iter().position(|byte| *byte == b'\n')?;
    Some(String::from_utf8_lossy(&head[..end]).into_owned())
}

fn words(line: &str) -> Vec<&str> {
    line.split_ascii_whitespace().collect()
}

pub fn parse(head: &[u8]) -> Result<Request, Refused> {
    let line = first_line(head).ok_or(Refused::Malformed)?;
    let [method, target, version] = words(&line)[..] else {
        return Err(Refused::Malformed);
    };
    match version.strip_prefix("HTTP/") {
        Some(number) if number.starts_with("1.") => {}
        Some(_) => return Err(Refused::Version),
        None => return Err(Refused::Malformed),
    }
    let text = String::from_utf8_lossy(head);
    let mut request = Request {
        method: match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => Method::Other,
        },
        path: path(target).to_owned(),
        accept: None,
        scrape_timeout: None,
    };
    for line in text.lines().skip(1).take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(Refused::Malformed)?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "accept" => {
                let before = request.accept.take();
                request.accept = Some(before.map_or(value.to_owned(), |b| format!("{b},{value}")));
            }
            "x-prometheus-scrape-timeout-seconds" => request.scrape_timeout = seconds(value),
            _ => {}
        }
    }
    Ok(request)
}

/// Returns the path of a target, which a proxy writes as a whole URL.
fn path(target: &str) -> &str {
    let rest = target
        .strip_prefix("http://")
        .map(|rest| rest.find('/').map_or("/", |at| &rest[at..]));
    let path = rest.unwrap_or(target);
    path.split('?').next().unwrap_or_default()
}

/// Returns a time. A value that is no time counts as absent.
fn seconds(value: &str) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(value.parse().ok()?).ok()?;
    Some(time).filter(|time| !time.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_request_of_prometheus() {
        let head = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: text/plain\r\nAccept: */*\r\n\
                     X-Prometheus-Scrape-Timeout-Seconds: 2.5\r\n\r\nbody";
        assert!(is_complete(head));
        let request = Request {
            method: Method::Get,
            path: "/metrics".to_owned(),
            accept: Some("text/plain,*/*".to_owned()),
            scrape_timeout: Some(Duration::from_millis(2500)),
        };
        assert_eq!(parse(head), Ok(request));
    }

    #[test]
    fn refuses_everything_but_http_1() {
        for (head, refused) in [
            (&b"GET /metrics\r\n"[..], Refused::Malformed),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Refused::Version),
            (b"\x16\x03\x01\n", Refused::Malformed),
            (b"GET /metrics FTP/1.1\n\n", Refused::Malformed),
            (
                b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n",
                Refused::Malformed,
            ),
        ] {
            assert!(is_complete(head));
            assert_eq!(parse(head), Err(refused), "{head:?}");
        }
        assert!(!is_complete(b"GET /metrics HTTP/1.1\r\nHost: a\r\n"));
        for odd in ["NaN", "-1", "0", "1e400", "soon"] {
            assert_eq!(seconds(odd), None, "{odd}");
        }
        assert_eq!(path("http://host:9809/metrics?a"), "/metrics");
        assert_eq!(path("http://host"), "/");
    }
}
