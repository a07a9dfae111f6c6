//! Logs actions and failures for people, in `runmig.log` in the state directory. Only calls that concern a
//! slice write to it.

use runmig_lease::config::Config;
use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

/// Largest log in bytes. The state directory is a tmpfs, so the log takes that much memory, and the older log
/// in `.1` as much again.
const MAX_SIZE: u64 = 1 << 20;

/// Starts the log. A log that cannot be written is no reason to fail.
pub fn start(config: &Config) {
    let file = config.state_dir.join("runmig.log");
    rotate(&file);
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(&file);
    if let Ok(opened) = opened
        // A file with a second name could be another user's, linked to here.
        && opened.metadata().is_ok_and(|m| m.is_file() && m.nlink() == 1)
    {
        let _ = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_target(false)
            .with_writer(Mutex::new(opened))
            .try_init();
    }
}

fn rotate(file: &Path) {
    if std::fs::symlink_metadata(file).is_ok_and(|m| m.len() > MAX_SIZE) {
        let _ = std::fs::rename(file, file.with_extension("log.1"));
    }
}
