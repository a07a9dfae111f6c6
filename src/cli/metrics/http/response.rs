//! The answer to a request. It ends the connection, and tells its length.

use super::request::Refused;

pub struct Response {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Response {
    pub fn ok(content_type: &str, body: String) -> Response {
        Response {
            status: "200 OK",
            headers: vec![("Content-Type", content_type.to_owned())],
            body,
        }
    }

    /// Points to the metrics.
    pub fn to_metrics() -> Response {
        let mut response = Response::plain("302 Found", "the metrics are at /metrics\n");
        response.headers.push(("Location", "/metrics".to_owned()));
        response
    }

    pub fn refused(refused: Refused) -> Response {
        let (status, body) = match refused {
            Refused::Malformed => ("400 Bad Request", "this is no request of HTTP/1\n"),
            Refused::Path => ("404 Not Found", "the metrics are at /metrics\n"),
            Refused::Method => ("405 Method Not Allowed", "only GET and HEAD are allowed\n"),
            Refused::TooSlow => ("408 Request Timeout", "the request took too long\n"),
            Refused::TooLong => (
                "431 Request Header Fields Too Large",
                "the head is too long\n",
            ),
            Refused::Version => (
                "505 HTTP Version Not Supported",
                "only HTTP/1 is supported\n",
            ),
        };
        let mut response = Response::plain(status, body);
        if refused == Refused::Method {
            response.headers.push(("Allow", "GET, HEAD".to_owned()));
        }
        response
    }

    fn plain(status: &'static str, body: &str) -> Response {
        Response {
            status,
            ..Response::ok("text/plain; charset=utf-8", body.to_owned())
        }
    }

    /// Returns the answer as it goes out. The answer to a HEAD has no body, but the length of one.
    pub fn bytes(&self, is_head: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {}\r\nConnection: close\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        if !is_head {
            head.push_str(&self.body);
        }
        head.into_bytes()
    }
}
