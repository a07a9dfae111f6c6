//! Errors, where the engine looks for them: standard error, and the log file it gave, in runc's
//! form. Standard output is the low-level runtime's.

use super::args::{Call, LogFormat};
use crate::error::Error;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

pub struct Log {
    file: PathBuf,
    json: bool,
}

impl Log {
    pub fn of(call: &Call) -> Option<Log> {
        let json = call.log_format == Some(LogFormat::Json);
        call.log.clone().map(|file| Log { file, json })
    }

    /// Before the arguments are understood: good enough to put an error where it is looked for.
    pub fn guess(args: &[OsString]) -> Option<Log> {
        let value = |option: &str| {
            let with = format!("{option}=");
            args.iter().enumerate().find_map(|(i, arg)| {
                if arg == option {
                    return args.get(i + 1).cloned();
                }
                let value = arg.as_bytes().strip_prefix(with.as_bytes())?;
                Some(std::ffi::OsStr::from_bytes(value).to_owned())
            })
        };
        let json = value("--log-format").is_some_and(|format| format == "json");
        value("--log").map(|file| Log {
            file: file.into(),
            json,
        })
    }

    fn write(&self, message: &str) -> std::io::Result<()> {
        let time = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
        let line = if self.json {
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
    // Nobody is left to tell when neither can be written to.
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(log) = log {
        let _ = log.write(&line);
    }
}
