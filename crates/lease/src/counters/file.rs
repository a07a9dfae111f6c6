//! The file of the counters, mapped into memory that all processes share.

use super::layout::SLOTS;
use crate::error::{Context, Error, Result};
use crate::files::{self, Links};
use crate::model::BootId;
use crate::trust;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MAGIC: &[u8; 8] = b"runmigct";
const VERSION: u32 = 1;
const HEADER: usize = 64;
const LENGTH: usize = HEADER + SLOTS * size_of::<u64>();
/// The place of the boot id in the header.
const BOOT: std::ops::Range<usize> = 24..HEADER;
const NAME: &str = "counters";
const UNFINISHED: &str = ".new-counters-";
/// An older unfinished file has no maker any more.
const LONGEST_MAKE: Duration = Duration::from_secs(60);
/// The rounds of an open: the file is missing, or was moved aside a moment ago.
const ROUNDS: usize = 4;

/// The numbers of the file, open for additions.
pub(super) struct Mapped {
    start: *mut libc::c_void,
}

impl Mapped {
    /// Opens the file of a boot, and makes it if it is missing.
    pub(super) fn open(dir: &Path, boot: &BootId) -> Result<Mapped> {
        let path = path(dir, boot)?;
        let what = || format!("open {}", path.display());
        for _ in 0..ROUNDS {
            // As in `files`: a pipe must not block this process.
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
                .open(&path);
            let file = match opened {
                Ok(file) => file,
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    make(dir, &path, boot).context(what)?;
                    continue;
                }
                Err(e) => return Err(e).context(what),
            };
            match check(&file, boot) {
                Ok(()) => return map(&file).context(what),
                Err(why) => move_aside(&file, &path, &why).context(what)?,
            }
        }
        Err(Error::new("it is replaced all the time")).context(what)
    }

    pub(super) fn add(&self, slot: usize, n: u64) {
        self.all()[slot].fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn raise(&self, slot: usize, to: u64) {
        self.all()[slot].fetch_max(to, Ordering::Relaxed);
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this length. It is aligned to a page, and the header to eight bytes. Every process
        // accesses the numbers only by atomic operations or by reads of the file. Only root could shorten the file.
        unsafe {
            let numbers = self.start.cast::<u8>().add(HEADER).cast::<AtomicU64>();
            std::slice::from_raw_parts(numbers, SLOTS)
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this is the same mapping, and no reference into it outlives this value.
        unsafe { libc::munmap(self.start, LENGTH) };
    }
}

fn map(file: &File) -> std::io::Result<Mapped> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the call makes a new mapping at an address of the kernel's choice, of a file of at least this length.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            LENGTH,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    match start == libc::MAP_FAILED {
        true => Err(std::io::Error::last_os_error()),
        false => Ok(Mapped { start }),
    }
}

/// Returns the time of the first count, and the numbers. None if there is no file.
pub(super) fn read(dir: &Path, boot: &BootId) -> Result<Option<(SystemTime, Vec<u64>)>> {
    let path = path(dir, boot)?;
    let what = || format!("read {}", path.display());
    let opened = match files::open(&path, Links::Refuse) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.context(what)?,
    };
    trust::check_metadata(&opened.meta).context(what)?;
    let bytes = opened.read(LENGTH as u64).context(what)?;
    let since = check_bytes(&bytes, boot).context(what)?;
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let numbers = bytes[HEADER..].chunks_exact(size_of::<u64>()).map(number);
    Ok(Some((since, numbers.collect())))
}

/// Returns the path of the file of a boot.
fn path(dir: &Path, boot: &BootId) -> Result<PathBuf> {
    let boot = boot.as_str();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if boot.is_empty() || boot.len() > BOOT.len() || !boot.chars().all(is_plain) {
        return Err(Error::new("count in this boot, since its id is no boot id"));
    }
    Ok(dir.join(format!("{NAME}.{boot}")))
}

/// Makes the file, complete from its first moment. Another process may be faster.
fn make(dir: &Path, path: &Path, boot: &BootId) -> std::io::Result<()> {
    let mut bytes = vec![0; LENGTH];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    bytes[16..24].copy_from_slice(&now.to_ne_bytes());
    bytes[BOOT][..boot.as_str().len()].copy_from_slice(boot.as_str().as_bytes());
    let unfinished = dir.join(unfinished_name(now));
    let remove = || std::fs::remove_file(&unfinished);
    // Written, not only lengthened: on a full disk the write fails, and not an addition to the mapping.
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .and_then(|mut file| file.write_all(&bytes));
    let linked = written.and_then(|()| match std::fs::hard_link(&unfinished, path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let _ = remove();
    linked?;
    remove_earlier(dir, path);
    Ok(())
}

/// Returns a name that no other maker has: neither a thread of this process, nor a process with this id in another pid
/// namespace, nor a killed one.
fn unfinished_name(now: u64) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{UNFINISHED}{}-{next}-{now}", std::process::id())
}

/// Removes the files of killed makers.
pub(super) fn sweep(dir: &Path) {
    let is_old = |meta: Metadata| {
        meta.modified()
            .ok()?
            .elapsed()
            .ok()
            .map(|age| age > LONGEST_MAKE)
    };
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_unfinished = name.to_string_lossy().starts_with(UNFINISHED);
        if is_unfinished && entry.metadata().ok().and_then(is_old) == Some(true) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Removes the counters of earlier boots.
fn remove_earlier(dir: &Path, path: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_of_this =
            { path.file_name() }.is_some_and(|this| name.starts_with(&*this.to_string_lossy()));
        if name.starts_with(&format!("{NAME}.")) && !is_of_this {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Fails if this version cannot count in the file.
fn check(file: &File, boot: &BootId) -> Result<()> {
    let meta = file.metadata().context(|| "look at it")?;
    check_meta(&meta)?;
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).context(|| "read it")?;
    check_header(&header, boot).map(drop)
}

fn check_meta(meta: &Metadata) -> Result<()> {
    if !meta.is_file() {
        return Err(Error::new("it is not a regular file"));
    }
    trust::check_metadata(meta)?;
    match meta.size() == LENGTH as u64 {
        true => Ok(()),
        false => Err(Error::new(format!(
            "it has {} bytes instead of {LENGTH}",
            meta.size()
        ))),
    }
}

fn check_bytes(bytes: &[u8], boot: &BootId) -> Result<SystemTime> {
    match bytes.len() == LENGTH {
        true => check_header(&bytes[..HEADER], boot),
        false => Err(Error::new(format!(
            "it has {} bytes instead of {LENGTH}",
            bytes.len()
        ))),
    }
}

/// Checks a header, and returns the time of the first count.
fn check_header(header: &[u8], boot: &BootId) -> Result<SystemTime> {
    if &header[..8] != MAGIC {
        return Err(Error::new("it has no counters of runmig"));
    }
    let version = header[8..12].try_into().map_or(0, u32::from_ne_bytes);
    if version != VERSION {
        return Err(Error::new(format!(
            "it has version {version}, and this runmig knows version {VERSION}"
        )));
    }
    let of = header[BOOT].split(|byte| *byte == 0).next();
    if of != Some(boot.as_str().as_bytes()) {
        return Err(Error::new("it names another boot"));
    }
    let since = header[16..24].try_into().map_or(0, u64::from_ne_bytes);
    Ok(UNIX_EPOCH + Duration::from_nanos(since))
}

/// Renames the file, for an operator to look at, unless another process has done so. The lock lies on the file itself,
/// so two processes never rename a second one.
fn move_aside(file: &File, path: &Path, why: &Error) -> Result<()> {
    if !files::try_lock(file).context(|| "lock it")? {
        return Err(Error::new("another process has its lock"));
    }
    let ours = file.metadata().context(|| "look at it")?;
    let now = match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        now => now.context(|| "look at it")?,
    };
    if (now.dev(), now.ino()) != (ours.dev(), ours.ino()) {
        return Ok(());
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    std::fs::rename(path, &aside).context(|| "rename it")?;
    tracing::warn!(
        "{} is moved to {}, and counting begins anew: {}",
        path.display(),
        Path::new(&aside).display(),
        why.line()
    );
    Ok(())
}

#[cfg(test)]
mod tests;
