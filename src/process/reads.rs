//! The reads by which runmig finds out whether others live, apart from the decisions: a test gives the
//! decisions any answer, and each errno.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub trait Reads {
    /// All of a file; longer than `MAX` is an error.
    fn file(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The names in a folder.
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// The target of a link.
    fn link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Device and inode number of the target of a path.
    fn identity(&self, path: &Path) -> io::Result<(u64, u64)>;
    /// False where the file system of one of these paths does not answer.
    fn answers(&self, paths: &[PathBuf]) -> bool;
}

/// More than any file in `/proc` or record of a low-level runtime has.
const MAX: u64 = 16 << 20;

/// The machine that this process runs on.
pub struct Host;

impl Reads for Host {
    fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        // A pipe must not hold us up, nor a terminal become ours.
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)?;
        let mut bytes = Vec::new();
        opened.take(MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX {
            return Err(io::Error::other(format!("longer than {MAX} bytes")));
        }
        Ok(bytes)
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

    fn answers(&self, paths: &[PathBuf]) -> bool {
        super::answers(paths)
    }
}

/// Whether a failed read below `/proc/PID` says that there is no such process. No other errno does.
pub fn is_gone(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}
