//! Signs of a ledger that is in trouble, for callers that only look: locks that are held, and unfinished files.

use super::durable::TEMPORARY;
use super::lock;
use super::{Store, UNFINISHED};
use crate::error::{Context, Result};
use crate::files;
use crate::process;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOCKS: &str = "/proc/locks";
/// A line has less than 100 bytes, and a busy machine some thousand locks.
const MAX_LOCKS: u64 = 16 << 20;

/// A lock of the ledger that a process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    /// The lock file.
    pub file: PathBuf,
    /// The holder.
    pub pid: i32,
    /// The holder in words, with its purpose where it signed.
    pub holder: String,
    /// The time since the holder signed.
    pub age: Duration,
}

impl Store {
    /// Returns the locks that processes hold now, without taking one. Left out are those that last as long as a process
    /// or a container's create: of bundles, operations and the Kubernetes driver.
    ///
    /// # Errors
    /// The kernel's list cannot be read.
    pub fn held_locks(&self) -> Result<Vec<HeldLock>> {
        let what = || format!("read {LOCKS}");
        let text = files::read_text(Path::new(LOCKS), MAX_LOCKS).context(what)?;
        let files = entries(self.dir()).into_iter().filter(|file| {
            let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let is_gpu = name.starts_with("gpu-") && name.ends_with(".lock");
            is_gpu || ["plan.lock", "ledger.lock"].contains(&name)
        });
        let held = files.filter_map(|file| {
            let meta = file.symlink_metadata().ok()?;
            let pid = text.lines().find_map(|line| holder(line, &meta))?;
            let signed = lock::signer(&file).filter(|(signer, _)| *signer == pid);
            let holder = match &signed {
                Some((_, words)) => words.clone(),
                None => format!("process {pid} [{}]", process::name(pid)),
            };
            // Without its signature the file tells the time of an earlier hold.
            let since = meta.modified().ok()?.elapsed().unwrap_or_default();
            let age = match signed {
                Some(_) => since,
                None => since.min(process::age(pid).unwrap_or_default()),
            };
            Some(HeldLock {
                file,
                pid,
                holder,
                age,
            })
        });
        Ok(held.collect())
    }

    /// Returns the files of writers that a kill ended: those that are older than any write takes.
    pub fn unfinished(&self, older: Duration) -> Vec<PathBuf> {
        let folders = [
            self.dir().to_owned(),
            self.leases(),
            self.instances(),
            self.dir().join("queue"),
        ];
        let is_unfinished = |file: &PathBuf| {
            let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let age = file.symlink_metadata().and_then(|meta| meta.modified());
            let age = age.ok().and_then(|time| time.elapsed().ok());
            (name.starts_with(TEMPORARY) || name == UNFINISHED)
                && age.is_some_and(|age| age > older)
        };
        let files = folders.iter().flat_map(|folder| entries(folder));
        files.filter(is_unfinished).collect()
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Returns the holder of a file's lock by a line of the kernel's list, as
/// `1: FLOCK  ADVISORY  WRITE 4711 00:1a:2345 0 EOF`. A line with `->` is of a waiter. The kernel names the device of the
/// file system, which differs from that of the file on some, so an open file of the process also tells.
fn holder(line: &str, file: &Metadata) -> Option<i32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, _, pid, place, ..] = words.as_slice() else {
        return None;
    };
    let pid: i32 = pid.parse().ok()?;
    let (device, inode) = place.rsplit_once(':')?;
    if inode.parse() != Ok(file.ino()) {
        return None;
    }
    let (major, minor) = (libc::major(file.dev()), libc::minor(file.dev()));
    let is_same = device == format!("{major:02x}:{minor:02x}") || has_open(pid, file);
    is_same.then_some(pid)
}

fn has_open(pid: i32, file: &Metadata) -> bool {
    let opened = entries(&PathBuf::from(format!("/proc/{pid}/fd")));
    let is_it = |fd: &PathBuf| {
        let there = fs::metadata(fd);
        there.is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
    };
    opened.iter().any(is_it)
}
