//! A file is there whole or not at all, and stays over a crash.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How a file that is not finished is called.
pub(super) const TEMPORARY: &str = ".new-";

/// Under the ledger's lock: one writer at a time, so the name of the unfinished file can be fixed
/// and one left by a killed writer is written over.
pub(super) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = dir.join(format!("{TEMPORARY}{name}"));
    let written = write(&unfinished, bytes).and_then(|()| std::fs::rename(&unfinished, file));
    if written.is_err() {
        // An unfinished write must not fill a full disk further.
        let _ = std::fs::remove_file(&unfinished);
    }
    written?;
    sync(dir)
}

fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    unlink(file)?;
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    out.write_all(bytes)?;
    out.sync_all()
}

/// Gone already is fine.
pub(super) fn remove(file: &Path) -> io::Result<()> {
    unlink(file)?;
    sync(file.parent().unwrap_or(Path::new("/")))
}

/// The same for many files of one folder, which is synced once.
pub(super) fn remove_all(dir: &Path, files: &[PathBuf]) -> io::Result<Vec<io::Result<()>>> {
    let removed = files.iter().map(|file| unlink(file)).collect();
    sync(dir)?;
    Ok(removed)
}

fn unlink(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

pub(crate) fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
