//! Writes a file completely or not at all, and keeps it across a crash.

use crate::effect;
use crate::files;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The name prefix of an unfinished file.
pub(super) const TEMPORARY: &str = ".new-";

/// Replaces a file under the ledger's lock. With one writer at a time, the unfinished file can have a fixed
/// name. The next writer overwrites the file of a killed one.
pub(super) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = dir.join(format!("{TEMPORARY}{name}"));
    files::put(&unfinished, file, write(&unfinished, bytes))?;
    sync(dir)
}

fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    unlink(file)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut out = effect::open(&options, file)?;
    effect::write_all(&mut out, bytes)?;
    effect::sync(&out)
}

/// Removes a file, and returns whether it was there.
pub(super) fn remove(file: &Path) -> io::Result<bool> {
    let was_there = unlink(file)?;
    sync(file.parent().unwrap_or(Path::new("/")))?;
    Ok(was_there)
}

/// Removes many files of a few folders, and syncs each folder once. A missing folder is no error. Returns whether each
/// file was there.
pub(super) fn remove_all(dirs: &[PathBuf], files: &[PathBuf]) -> io::Result<Vec<io::Result<bool>>> {
    let removed = files.iter().map(|file| unlink(file)).collect();
    for dir in dirs {
        match sync(dir) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(removed)
}

fn unlink(file: &Path) -> io::Result<bool> {
    match effect::remove_file(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

pub(crate) fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            let _ = effect::remove_file(&entry.path());
        }
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    effect::sync(&File::open(dir)?)
}
