//! The daemon's log, on standard output.

use std::io::{self, Write};
use std::time::SystemTime;

/// Writes a line. A reader that is gone is no error.
pub fn add(source: &str, text: &str) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let (seconds, pid) = (now.map_or(0, |now| now.as_secs()), std::process::id());
    let _ = writeln!(io::stdout(), "[{seconds} {source} {pid}] {text}");
}
