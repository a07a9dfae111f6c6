//! Writes errors where the engine looks for them: to standard error, and to its log file in runc's form.
//! Standard output belongs to the low-level runtime.

use super::args::Log;
use runmig_lease::error::Error;
use runmig_lease::model::Timestamp;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

impl Log {
    fn write(&self, message: &str) -> std::io::Result<()> {
        let time = Timestamp::seconds(std::time::SystemTime::now());
        let time = time.as_str();
        let line = if self.is_json {
            serde_json::json!({"level": "error", "msg": message, "time": time}).to_string()
        } else {
            let quoted = serde_json::Value::from(message);
            format!("time=\"{time}\" level=error msg={quoted}")
        };
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o644)
            .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
            .open(&self.file)?;
        file.write_all(format!("{line}\n").as_bytes())
    }
}

pub fn error(e: &Error, log: Option<&Log>) {
    let line = format!("runmig: {}", e.line());
    // runmig writes to the log first, since a broken pipe as standard error may end runmig. If both writes
    // fail, no reader gets the error.
    if let Some(log) = log {
        let _ = log.write(&line);
    }
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes a line for the operator that is no error. It goes into no log of the engine, since the engine shows
/// its user the log's last line as the error.
pub fn note(text: &str) {
    let line = runmig_lease::error::printable(text);
    let _ = writeln!(std::io::stderr(), "runmig: {line}");
}
