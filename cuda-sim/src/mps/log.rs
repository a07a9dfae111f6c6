//! The daemon's log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

pub struct Log(Mutex<Box<dyn Write + Send>>);

impl Log {
    /// Returns a log on standard output, as with `-f`.
    pub fn standard_output() -> Log {
        Log(Mutex::new(Box::new(io::stdout())))
    }

    /// Returns the log in `$CUDA_MPS_LOG_DIRECTORY`, as with `-d`.
    pub fn in_directory() -> io::Result<Log> {
        let dir = std::env::var_os("CUDA_MPS_LOG_DIRECTORY");
        let dir = dir.unwrap_or_else(|| "/var/log/nvidia-mps".into());
        std::fs::create_dir_all(&dir)?;
        let path = Path::new(&dir).join("control.log");
        let file: File = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Log(Mutex::new(Box::new(file))))
    }

    /// Writes a line. A reader that is gone is no error.
    pub fn add(&self, source: &str, text: &str) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let (seconds, pid) = (now.map_or(0, |now| now.as_secs()), std::process::id());
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(out, "[{seconds} {source} {pid}] {text}");
        let _ = out.flush();
    }
}
