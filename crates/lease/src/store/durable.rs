//! Writes a file completely or not at all, and keeps it across a crash.

use crate::effect;
use crate::files;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The name prefix of an unfinished file.
const TEMPORARY: &str = ".new-";

/// Replaces a file under a lock. With one writer at a time, the unfinished file can have a fixed
/// name. The next writer overwrites the file of a killed one.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = dir.join(format!("{TEMPORARY}{name}"));
    files::put(&unfinished, file, write(&unfinished, bytes))?;
    sync(dir)
}

/// Writes a new file, and syncs it. What was there goes.
pub(super) fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    unlink(file)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut out = effect::open(&options, file)?;
    effect::write_all(&mut out, bytes)?;
    effect::sync(&out)
}

/// Removes a file, and returns whether it was there.
pub(super) fn unlink(file: &Path) -> io::Result<bool> {
    match effect::remove_file(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

pub(super) fn sync(dir: &Path) -> io::Result<()> {
    effect::sync(&File::open(dir)?)
}
