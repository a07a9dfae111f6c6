//! A log of every call, for tests that want to find all the points where something can go wrong.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::{state, sys};

const SWITCH: &str = "trace.on";
const LOG: &str = "trace.log";

pub fn on(dir: &Path) -> io::Result<()> {
    let log = File::create(dir.join(LOG))?;
    // Calls of other users are traced too.
    log.set_permissions(Permissions::from_mode(0o666))?;
    File::create(dir.join(SWITCH))?;
    state::renew(dir)
}

pub fn off(dir: &Path) -> io::Result<()> {
    state::remove(&dir.join(SWITCH))
}

pub fn read(dir: &Path) -> io::Result<String> {
    match fs::read_to_string(dir.join(LOG)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    }
}

pub fn is_on(dir: &Path) -> bool {
    dir.join(SWITCH).exists()
}

/// Adds a line `PID FUNCTION NANOSECONDS END`. The time is the call's own CPU time, without this line's.
/// END is the return code or the way in which the process was killed. A line that cannot be written
/// is lost: a call does not fail for its trace. A call without a beginning is not traced.
pub fn add(dir: &Path, function: &str, began: Option<Duration>, end: &str) {
    let Some(began) = began else {
        return;
    };
    let cpu = sys::thread_cpu().saturating_sub(began);
    if let Ok(mut log) = OpenOptions::new().append(true).open(dir.join(LOG)) {
        let (pid, cpu) = (std::process::id(), cpu.as_nanos());
        let line = format!("{pid} {function} {cpu} {end}\n");
        let _ = log.write_all(line.as_bytes());
    }
}
