//! The log of actions and failures for people: `runmig.log` in the state directory.

use crate::effect;
use crate::files::log_size;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The name of the log.
pub const NAME: &str = "runmig.log";

/// Largest log in bytes. The state directory is a tmpfs, so the log takes that much memory, and the older log
/// in `.1` as much again.
const MAX_SIZE: u64 = 1 << 20;

/// Opens the log at its end, and begins a new one if it is too large. None if it cannot be written, which is no reason to
/// fail.
pub fn open(state_dir: &Path) -> Option<File> {
    let file = state_dir.join(NAME);
    let is_large = |m: Metadata| m.len() > log_size(state_dir, MAX_SIZE);
    if std::fs::symlink_metadata(&file).is_ok_and(is_large) {
        let _ = effect::rename(&file, &file.with_extension("log.1"));
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let opened = effect::open(&options, &file);
    // A file with a second name could be another user's, linked to here.
    let is_ours = |file: &File| file.metadata().is_ok_and(|m| m.is_file() && m.nlink() == 1);
    opened.ok().filter(is_ours)
}
