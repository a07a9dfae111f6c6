//! Tells whether runmig can look at a path without waiting for a server that may be gone.

use super::look::{Look, Seen, look};
use super::{Host, Reads};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// File systems that depend only on a disk of this machine. Others may hang.
const LOCAL: &[&str] = &[
    "tmpfs", "ramfs", "devtmpfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs",
];

/// The largest age of a list of mounts. One list serves a pass over thousands of leases.
const AGE: Duration = Duration::from_secs(1);

/// Returns false if the file system of one of these canonical paths does not answer in time. An absent path
/// counts as an answer.
pub fn answers(paths: &[PathBuf]) -> bool {
    static MOUNTS: Mutex<Option<(Instant, Mounts)>> = Mutex::new(None);
    let mut known = MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, mounts) = match known.take() {
        Some((read, mounts)) if read.elapsed() < AGE => known.insert((read, mounts)),
        _ => {
            let text = Host.file(Path::new("/proc/self/mountinfo"));
            let mounts = Mounts::new(&text.unwrap_or_default());
            known.insert((Instant::now(), mounts))
        }
    };
    let remote = paths.iter().filter(|path| !mounts.is_local(path));
    let asked = remote.filter_map(|p| CString::new(p.as_os_str().as_bytes()).ok());
    let asked: Vec<Look> = asked.map(Look::Asked).collect();
    // Without a child, a look could block for ever.
    look(&asked).is_ok_and(|seen| !seen.contains(&Seen::Unanswered))
}

/// Mount points, each with a flag for a local file system. A later mount covers an earlier one.
struct Mounts(Vec<(Vec<u8>, bool)>);

impl Mounts {
    /// Parses a text like `/proc/PID/mountinfo`.
    fn new(text: &[u8]) -> Mounts {
        let text = String::from_utf8_lossy(text);
        let mount = |line: &str| {
            let point = unescaped(line.split(' ').nth(4)?);
            let kind = line.split_once(" - ")?.1.split(' ').next()?;
            Some((point, LOCAL.contains(&kind)))
        };
        Mounts(text.lines().filter_map(mount).collect())
    }

    fn is_local(&self, path: &Path) -> bool {
        let path = path.as_os_str().as_bytes();
        let covers = |point: &[u8]| {
            let rest = path.strip_prefix(point);
            rest.is_some_and(|r| r.is_empty() || r[0] == b'/' || point == b"/")
        };
        let over = self.0.iter().filter(|(point, _)| covers(point));
        over.max_by_key(|(point, _)| point.len())
            .is_some_and(|(_, is_local)| *is_local)
    }
}

/// Returns a word with its escapes decoded: `\040` is a blank.
pub(super) fn unescaped(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let code = octal.and_then(|o| u8::from_str_radix(std::str::from_utf8(o).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_mount_that_covers() {
        let mounts = Mounts::new(
            b"21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            22 21 0:5 / /run rw - tmpfs tmpfs rw\n\
            23 22 0:6 / /run/far\\040away rw - fuse.sshfs far rw\n\
            24 22 0:7 / /run/x rw - nfs4 x:/ rw\n\
            25 24 0:8 / /run/x rw - tmpfs tmpfs rw\n\
            26 24 0:8 / /run/y rw - tmpfs tmpfs rw\n\
            27 24 0:8 / /run/y rw - 9p y rw\n",
        );
        let is_local = |path: &str| mounts.is_local(Path::new(path));
        for path in ["/", "/etc", "/run/a", "/running", "/run/far", "/run/x/y"] {
            assert!(is_local(path), "{path}");
        }
        for path in ["/run/far away/b", "/run/far away", "/run/y", "/run/y/z"] {
            assert!(!is_local(path), "{path}");
        }
        assert!(!Mounts::new(b"").is_local(Path::new("/a")));
    }

    #[test]
    fn local_paths_answer() {
        let paths = ["/proc/self/stat", "/nowhere", "/"].map(PathBuf::from);
        assert!(answers(&paths));
    }
}
