//! `migctl metrics --http`: one HTTP request on standard input, its answer on standard output, then the end. systemd holds
//! the socket and starts migctl for each connection, so no process of runmig listens.

mod accept;
mod request;
mod response;
mod stream;

use super::{DRIVER_LIMIT, Exposed};
use request::{Method, Refused, Request};
use response::Response;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use std::time::{Duration, Instant};
use stream::Received;

/// The longest wait for a request, for a reader of the answer, and for its end of the connection.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_secs(1);

/// Answers one request. A client that goes early is no error.
pub fn run(config: &Config) -> Result<i32> {
    let begun = Instant::now();
    let request = match stream::receive(begun + REQUEST_LIMIT) {
        Received::Head(head) => request::parse(&head),
        Received::Refused(refused) => Err(refused),
        // A connection without a request, as of a port scan.
        Received::Nothing => return Ok(0),
    };
    let (response, is_head) = match request {
        Ok(request) => (
            answer(config, &request, begun),
            request.method == Method::Head,
        ),
        Err(refused) => (Response::refused(refused), false),
    };
    stream::send(&response.bytes(is_head), Instant::now() + ANSWER_LIMIT);
    stream::end(Instant::now() + END_LIMIT);
    Ok(0)
}

fn answer(config: &Config, request: &Request, begun: Instant) -> Response {
    match (request.path.as_str(), request.method) {
        ("/metrics" | "/", Method::Other) => Response::refused(Refused::Method),
        ("/metrics", Method::Get | Method::Head) => {
            let format = accept::format(request.accept.as_deref());
            let exposed = Exposed::now(config, Some(driver_limit(request, begun.elapsed())));
            Response::ok(format.content_type(), format.write(&exposed.families))
        }
        ("/", Method::Get | Method::Head) => Response::to_metrics(),
        _ => Response::refused(Refused::Path),
    }
}

/// Returns the time for the driver. The rest of the scrape's is for the ledger and the way back.
fn driver_limit(request: &Request, spent: Duration) -> Duration {
    let scrape = request
        .scrape_timeout
        .unwrap_or(DRIVER_LIMIT.mul_f64(4.0 / 3.0));
    scrape.mul_f64(0.75).saturating_sub(spent).min(DRIVER_LIMIT)
}
