//! The one reader of files, and the writer of those that change completely or not at all. The reader opens only regular files,
//! changes nothing by that, and reads no more than its caller allows. Errors are the system's own, so that callers can tell
//! them apart; a caller adds the path.

use crate::effect;
use fs2::FileExt;
use memchr::memmem;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statvfs::statvfs;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Take};
use std::os::fd::AsFd;
use std::path::Path;

/// Says whether the last part of a path may be a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// The reader follows a link.
    Follow,
    /// Fails with `ELOOP` at a link.
    Refuse,
}

/// Returns the size in bytes at which a log in a folder is rotated: `most`, but at most a sixteenth of its file system. So some
/// logs and the files before them leave room for the ledger.
pub(crate) fn log_size(folder: &Path, most: u64) -> u64 {
    let size = statvfs(folder).map_or(0, |of| of.blocks() * of.fragment_size());
    // Some file systems tell no size.
    match size / 16 {
        0 => most,
        part => most.min(part),
    }
}

/// The bytes of a file that a search has in memory.
const SEARCHED: usize = 32 * 1024;

/// A regular file that is open for reading.
#[derive(Debug)]
pub struct Opened {
    /// The open file.
    pub file: File,
    /// Its metadata, from the open file.
    pub meta: Metadata,
}

/// Returns all bytes of a regular file, whose path may be a link.
///
/// # Errors
/// `FileTooLarge` without an errno where the file has more than `max` bytes.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    open(path, Links::Follow)?.read(max)
}

/// The same, as text.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    open(path, Links::Follow)?.read_text(max)
}

/// Opens a regular file for reading.
pub fn open(path: &Path, links: Links) -> io::Result<Opened> {
    open_at(AT_FDCWD, path, links)
}

/// The same, with a path that starts at an open directory.
#[allow(clippy::disallowed_methods)] // It only reads.
pub fn open_at(dir: impl AsFd, path: &Path, links: Links) -> io::Result<Opened> {
    // A pipe must not block this process, nor a terminal become its own.
    let mut flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    if links == Links::Refuse {
        flags |= OFlag::O_NOFOLLOW;
    }
    let file = loop {
        match openat(&dir, path, flags, Mode::empty()) {
            Err(Errno::EINTR) => {}
            opened => break File::from(opened?),
        }
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(Opened { file, meta })
}

/// Puts a draft in the place of a file in a single step, if it could be written. An unfinished draft must not fill a full
/// disk further, so it goes.
pub fn put(draft: &Path, file: &Path, written: io::Result<()>) -> io::Result<()> {
    let put = written.and_then(|()| effect::rename(draft, file));
    if put.is_err() {
        let _ = effect::remove_file(draft);
    }
    put
}

/// Returns whether a process holds the lock of a file. A missing file is not locked.
pub(crate) fn is_locked(path: &Path, links: Links) -> io::Result<bool> {
    if_there(open(path, links))?.map_or(Ok(false), |opened| opened.is_locked())
}

/// Turns a `NotFound` error into none.
pub fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

impl Opened {
    /// Returns whether a process holds the lock of the file.
    pub(crate) fn is_locked(&self) -> io::Result<bool> {
        // The lock is shared, so that no reader takes another reader for the holder.
        match FileExt::try_lock_shared(&self.file) {
            Ok(()) => Ok(false),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Returns all bytes, at most `max`.
    pub fn read(self, max: u64) -> io::Result<Vec<u8>> {
        // Files in /proc have no length, and most need one read.
        let expected = self.meta.len().clamp(1023, max.max(1023));
        let bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0) + 1);
        all(&self.file, bytes, max)
    }

    /// Returns whether a text is in the first `max` bytes.
    ///
    /// Most often the text is not there. memchr would ask the processor first what it can, and on a virtual machine that takes
    /// longer than the search. Rust's library is as fast for up to 32 bytes, so it looks for the end of the text first.
    pub(crate) fn contains(self, text: &str, max: u64) -> io::Result<bool> {
        let mut starts = text.len().saturating_sub(32)..=text.len();
        let start = starts.find(|at| text.is_char_boundary(*at));
        let end = &text[start.unwrap_or_default()..];
        has_part(self.file, text.len(), max, |part| {
            String::from_utf8_lossy(part).contains(end)
                && memmem::find(part, text.as_bytes()).is_some()
        })
    }

    /// The same, as text.
    pub(crate) fn read_text(self, max: u64) -> io::Result<String> {
        let not_text = |e| io::Error::new(ErrorKind::InvalidData, e);
        String::from_utf8(self.read(max)?).map_err(not_text)
    }
}

/// Searches a reader part by part with `is_in`, for something of at most `longest` bytes. No more than a part is in memory,
/// since each new page costs more than to search it.
///
/// # Errors
/// The reader has more than `max` bytes, and nothing was found in those.
pub fn has_part(
    from: impl Read,
    longest: usize,
    max: u64,
    is_in: impl Fn(&[u8]) -> bool,
) -> io::Result<bool> {
    let mut from = limited(from, max);
    let mut part = vec![0; SEARCHED.max(2 * longest)];
    let mut filled = 0;
    loop {
        match from.read(&mut part[filled..]) {
            Ok(0) => return Ok(false),
            Ok(length) => filled += length,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if is_in(&part[..filled]) {
            return Ok(true);
        }
        // It may begin at the end of this part.
        let kept = filled.min(longest.saturating_sub(1));
        part.copy_within(filled - kept..filled, 0);
        filled = kept;
    }
}

/// Returns all that a pipe or an open file still has, at most `max` bytes.
pub fn read_rest(from: impl Read, max: u64) -> io::Result<Vec<u8>> {
    all(from, Vec::new(), max)
}

/// Returns the next bytes, `max` or as many as there are.
pub fn read_start(from: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A reader that fails at the first byte beyond its limit.
pub struct Limited<R> {
    from: Take<R>,
    max: u64,
}

/// For a text that is parsed as it comes, so that no more of it than needed is in memory.
pub fn limited<R: Read>(from: R, max: u64) -> Limited<R> {
    let from = from.take(max.saturating_add(1));
    Limited { from, max }
}

impl<R> Limited<R> {
    /// Whether nothing has been read yet.
    pub fn is_untouched(&self) -> bool {
        self.from.limit() > self.max
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(into)?;
        if self.from.limit() == 0 {
            let why = format!("longer than {} bytes", self.max);
            return Err(io::Error::new(ErrorKind::FileTooLarge, why));
        }
        Ok(length)
    }
}

fn all(from: impl Read, mut bytes: Vec<u8>, max: u64) -> io::Result<Vec<u8>> {
    limited(from, max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The name prefix of an unfinished file.
const TEMPORARY: &str = ".new-";

/// Replaces a file under a lock. With one writer at a time, the unfinished file can have a fixed
/// name. The next writer overwrites the file of a killed one. Without a lock two writers may spoil it for each other, so its
/// reader has to check it.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = dir.join(format!("{TEMPORARY}{name}"));
    put(&unfinished, file, write_new(&unfinished, bytes))?;
    sync_folder(dir)
}

/// Writes a new file, and syncs it. What was there goes.
pub(crate) fn write_new(file: &Path, bytes: &[u8]) -> io::Result<()> {
    unlink(file)?;
    let mut out = effect::create(file)?;
    effect::write_all(&mut out, bytes)?;
    effect::sync(&out)
}

/// Removes a file, and returns whether it was there.
pub(crate) fn unlink(file: &Path) -> io::Result<bool> {
    Ok(if_there(effect::remove_file(file))?.is_some())
}

/// Keeps the names in a folder across a crash.
pub(crate) fn sync_folder(dir: &Path) -> io::Result<()> {
    effect::sync(&File::open(dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn reads_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for length in [0, 1, 1023, 1024, 5000] {
            fs::write(&path, vec![b'x'; length]).unwrap();
            let max = length as u64;
            assert_eq!(read(&path, max).unwrap().len(), length);
            if let Some(less) = max.checked_sub(1) {
                let e = read_text(&path, less).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::FileTooLarge);
                assert_eq!(e.to_string(), format!("longer than {less} bytes"));
            }
            let file = || File::open(&path).unwrap();
            assert_eq!(read_rest(file(), max).unwrap().len(), length);
            assert_eq!(read_start(file(), 1000).unwrap().len(), length.min(1000));
        }
        assert!(read_rest(io::repeat(0), 4096).is_err());
        assert!(!read(Path::new("/proc/self/stat"), 4096).unwrap().is_empty());
        fs::write(&path, b"\xff").unwrap();
        let e = read_text(&path, 1).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn finds_text_across_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let long = "k".repeat(2 * SEARCHED);
        let wide = "ü".repeat(40);
        for text in ["a key of some bytes", "k", &long, &wide] {
            for before in [0, SEARCHED - 3, SEARCHED, 3 * SEARCHED - 1] {
                let whole = ["x".repeat(before).as_str(), text, "yz"].concat();
                fs::write(&path, &whole).unwrap();
                let searched = |text: &str, max| {
                    let opened = open(&path, Links::Refuse).unwrap();
                    opened.contains(text, max as u64)
                };
                assert!(searched(text, whole.len()).unwrap());
                assert!(!searched(&[text, "z"].concat(), whole.len()).unwrap());
                assert!(!searched(&["z", text].concat(), whole.len()).unwrap());
                let e = searched("none", whole.len() - 1).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::FileTooLarge);
            }
        }
    }

    #[test]
    fn opens_only_regular_files() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, link) = (dir.path().join("pipe"), dir.path().join("link"));
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        symlink("f", &link).unwrap();
        fs::write(dir.path().join("f"), "x").unwrap();
        for path in [&pipe, dir.path(), Path::new("/dev/null")] {
            let e = read(path, 10).unwrap_err();
            assert_eq!(e.to_string(), "not a regular file", "{}", path.display());
        }
        let refused = open(&link, Links::Refuse).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ELOOP));
        let parent = File::open(dir.path()).unwrap();
        let opened = open_at(&parent, Path::new("link"), Links::Follow).unwrap();
        assert_eq!(opened.read(1).unwrap(), b"x");
    }

    #[test]
    fn reader_is_untouched_until_its_first_byte() {
        let mut reader = limited(&b"ab"[..], 2);
        assert!(reader.is_untouched());
        reader.read_exact(&mut [0]).unwrap();
        assert!(!reader.is_untouched());
    }
}
