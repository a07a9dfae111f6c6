//! The reads by which runmig learns whether other processes live, apart from the decisions. A test can give
//! the decisions any answer and any errno.

use crate::files::{self, Links};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Reads `/proc`, cgroups and the files of low-level runtimes.
pub trait Reads {
    /// Returns all bytes of a file. More than 16 MiB are an error.
    fn file(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns the names in a folder.
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Returns the target of a link.
    fn link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Returns the device and inode number of the target of a path.
    fn identity(&self, path: &Path) -> io::Result<(u64, u64)>;
    /// Returns whether a process holds the lock of a file. A missing file is not locked.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;
    /// Returns false if the file system of one of these paths does not answer.
    fn answers(&self, paths: &[PathBuf]) -> bool;
}

/// The limit of a read, in bytes. No file in `/proc` and no record of a low-level runtime is this long.
const MAX: u64 = 16 << 20;

/// The machine that this process runs on.
pub struct Host;

impl Reads for Host {
    fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        files::read(path, MAX)
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|e| Ok(e?.file_name())).collect()
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn identity(&self, path: &Path) -> io::Result<(u64, u64)> {
        fs::metadata(path).map(|m| (m.dev(), m.ino()))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        files::is_locked(path, Links::Refuse)
    }

    fn answers(&self, paths: &[PathBuf]) -> bool {
        super::answers(paths)
    }
}

/// Returns whether a failed read below `/proc/PID` says that the process does not exist. No other errno
/// does.
pub fn is_gone(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}
