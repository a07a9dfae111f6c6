//! Locks that end with their holders: one that limits the wait for it and names its holder, and what runmig locks beside the
//! ledger: bundles, claims, the driver for Kubernetes, and reloads of dcgm-exporter.

pub(super) use crate::effect::try_lock;

use super::{Store, file};
use crate::error::{Context, Error, Result};
use crate::model::Process;
use crate::{effect, files, process};
use nix::sys::signal::SigSet;
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The limit of a signature, in bytes. A purpose names a container, whose id may be long. A signature that
/// is cut off names no holder.
const MAX_SIGNATURE: u64 = 4096;
/// The number of replacements of a lock file that runmig tolerates while it locks. No part of runmig
/// replaces one.
pub(super) const MAX_REPLACED: usize = 100;

/// A held lock, until it is dropped or its process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
    /// The bytes at the file's start that outlive the holder.
    kept: u64,
}

/// Clears the signature while the lock is still held, so a signature always belongs to the holder. Then gives
/// the lock back: closing the file does so only once the last process that another thread forked meanwhile has
/// closed its copy.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = effect::set_len(&self.file, self.kept);
        let _ = fs2::FileExt::unlock(&self.file);
    }
}

impl Lock {
    /// The length of the line that [`Lock::keep`] writes, in bytes.
    pub(super) const KEPT: u64 = 21;

    /// Writes a number at the start of the file, where it outlives the holder. For the ledger's lock alone.
    pub(super) fn keep(&self, number: u64) -> io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        effect::write_all(&mut file, format!("{number:020}\n").as_bytes())
    }

    /// Takes a lock, and waits for it: without a timeout for as long as it takes.
    pub(crate) fn take(path: &Path, timeout: Option<Duration>, why: &str) -> Result<Lock> {
        let what = || format!("lock {}", path.display());
        let Ok(file) = hold::<Infallible>(path, |file| {
            if try_lock(&file).context(what)? {
                return Ok(Ok(file));
            }
            let Some(timeout) = timeout else {
                effect::wait(path);
                effect::lock(&file).context(what)?;
                return Ok(Ok(file));
            };
            match wait(file, path, timeout)?.transpose().context(what)? {
                Some(file) => Ok(Ok(file)),
                None => Err(Error::new(format!(
                    "{} is held by {}, waited {}",
                    path.display(),
                    holder(path)?,
                    humantime::format_duration(timeout)
                ))
                .hint("let it end, or set a longer lock_timeout in the configuration")
                .passing()),
            }
        })?;
        Ok(Lock::signed(file, path, why))
    }

    /// Takes a lock without waiting. Returns the holder in words if another process has it.
    pub(super) fn try_take(path: &Path, why: &str) -> Result<Result<Lock, String>> {
        let what = || format!("lock {}", path.display());
        let locked = hold(path, |file| match try_lock(&file).context(what)? {
            true => Ok(Ok(file)),
            false => holder(path).map(Err),
        })?;
        Ok(locked.map(|file| Lock::signed(file, path, why)))
    }

    fn signed(mut file: File, path: &Path, why: &str) -> Lock {
        let kept = kept(path);
        sign(&mut file, kept, why);
        Lock { file, kept }
    }
}

/// Locks the file at a path by a function that returns the locked file, or why it is not locked. If another process
/// removed the file meanwhile, locks the new one.
pub(super) fn hold<N>(
    path: &Path,
    lock: impl Fn(File) -> Result<Result<File, N>>,
) -> Result<Result<File, N>> {
    let what = || format!("lock {}", path.display());
    for _ in 0..MAX_REPLACED {
        match lock(open(path)?)? {
            Ok(file) if !is_still(&file, path).context(what)? => {}
            locked => return Ok(locked),
        }
    }
    Err(replaced(path))
}

/// Returns the position of the byte that stands for a name in a file of which each byte is a lock. Two names at one
/// position would only wait for each other.
fn byte_of(name: &[u8]) -> i64 {
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(name)[..8]);
    // The last position is left out, because a lock there would overflow.
    i64::from_le_bytes(first) & (i64::MAX >> 1)
}

/// Waits for the lock. Returns none if one holder keeps it for the whole timeout. A queue that moves on may
/// be of any length.
///
/// The kernel admits waiters in their order, and polling does not. But the kernel's wait has no end, so a
/// thread waits, and runmig abandons it at the timeout. A lock that the abandoned thread still gets is
/// released at once. On success the thread has ended. The thread takes no signals: an abandoned one would take the
/// SIGCHLD that tells of the low-level runtime's end.
fn wait(file: File, path: &Path, timeout: Duration) -> Result<Option<std::io::Result<File>>> {
    let (done, lock) = std::sync::mpsc::channel();
    let mut holder = signature(path)?;
    effect::wait(path);
    let waiter = std::thread::Builder::new()
        .stack_size(64 * 1024)
        .spawn(move || {
            let _ = SigSet::all().thread_block();
            let locked = effect::lock(&file).map(|()| file);
            let _ = done.send(locked);
        })
        .context(|| format!("wait for {}", path.display()))?;
    loop {
        if let Ok(locked) = lock.recv_timeout(timeout) {
            let _ = waiter.join();
            return Ok(Some(locked));
        }
        let now = signature(path)?;
        if now == holder {
            return Ok(None);
        }
        holder = now;
    }
}

fn open(path: &Path) -> Result<File> {
    let what = || format!("open {}", path.display());
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = effect::open(&options, path).context(what)?;
    if !file.metadata().context(what)?.is_file() {
        return Err(not_regular(path));
    }
    Ok(file)
}

pub(super) fn not_regular(path: &Path) -> Error {
    Error::new(format!("{} is not a regular file", path.display()))
        .hint("remove it: runmig creates only regular files there")
}

/// Returns whether a path still leads to the file that was opened there.
pub(super) fn is_still(file: &File, path: &Path) -> std::io::Result<bool> {
    let ours = file.metadata()?;
    let there = files::if_there(std::fs::symlink_metadata(path))?;
    Ok(there.is_some_and(|there| (ours.dev(), ours.ino()) == (there.dev(), there.ino())))
}

pub(super) fn replaced(path: &Path) -> Error {
    Error::new(format!(
        "cannot lock {}: another file was there {MAX_REPLACED} times when it was locked",
        path.display()
    ))
    .hint("end the program that replaces files in the state directory")
}

/// Returns the number of bytes of a lock file that outlive its holders: of the ledger's the generation.
fn kept(path: &Path) -> u64 {
    match path.ends_with(file::LOCK) {
        true => Lock::KEPT,
        false => 0,
    }
}

/// Writes the holder and the purpose, then the mark of this hold: the start time of the process and a
/// number. Only people read it, so a failed write is no failure.
fn sign(file: &mut File, kept: u64, why: &str) {
    static HOLDS: AtomicU64 = AtomicU64::new(0);
    let Process { pid, start_time } = process::current();
    let hold = HOLDS.fetch_add(1, Ordering::Relaxed);
    let _ = effect::set_len(file, kept);
    let _ = file.seek(SeekFrom::Start(kept));
    // In one write, so that no reader takes a part of it for another holder's.
    let text = format!("process {pid} ({why})\n{start_time} {hold}\n");
    let _ = effect::write_all(file, text.as_bytes());
}

/// Returns the holder's text. The same text twice means one uninterrupted hold.
fn signature(path: &Path) -> Result<String> {
    let mut file = open(path)?;
    let _ = file.seek(SeekFrom::Start(kept(path)));
    let text = files::read_start(file, MAX_SIGNATURE).unwrap_or_default();
    Ok(String::from_utf8(text).unwrap_or_default())
}

fn holder(path: &Path) -> Result<String> {
    let named = named(&signature(path)?);
    Ok(named.unwrap_or_else(|| "a process that cannot be named".to_owned()))
}

/// Names the holder. Returns none if the signing process has ended: the next holder has the lock and has
/// not signed yet.
fn named(signature: &str) -> Option<String> {
    let (shown, hold) = signature.split_once('\n')?;
    let pid = shown.split_whitespace().nth(1)?.parse().ok()?;
    let start_time: u64 = hold.split_whitespace().next()?.parse().ok()?;
    let signer = process::of(pid).filter(|now| now.start_time == start_time)?;
    Some(format!(
        "{} [{}]",
        crate::error::printable(shown),
        process::name(signer.pid)
    ))
}

/// All bundles share one file, and each bundle has a byte of it to lock. Only root can open the file, whereas any reader of a
/// bundle's directory could lock that directory. No bundle needs a file of its own that runmig would have to clean up.
const BUNDLES: &str = "bundles.lock";

/// A lock on one byte of a file, until it is dropped or its process ends. A bundle's byte keeps two creates from starting with
/// one slice; a claim's byte gives the claim one worker at a time.
#[derive(Debug)]
pub struct ByteLock {
    _file: File,
}

/// The device and inode of a bundle's directory, which the caller keeps open. They are the same by every path.
#[derive(Clone, Copy, Debug)]
pub struct BundleId {
    /// The device.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
}

impl Store {
    /// Locks a bundle without waiting. Returns none if another process has the lock.
    pub fn try_lock_bundle(&self, bundle: BundleId) -> Result<Option<ByteLock>> {
        let path = self.dir().join(BUNDLES);
        let id = [bundle.dev.to_le_bytes(), bundle.ino.to_le_bytes()].concat();
        let locked = hold(&path, |file| {
            let locked = effect::lock_byte(&file, byte_of(&id), false);
            let locked = locked.context(|| format!("lock {}", path.display()))?;
            Ok(locked.then_some(file).ok_or(()))
        })?;
        Ok(locked.ok().map(|file| ByteLock { _file: file }))
    }
}

/// The whole of the file says which of two processes publishes while one takes over from the other. A byte of it is a claim's
/// turn.
const DRA: &str = "dra.lock";
const PUBLISHES: &str = "publishes to Kubernetes";

impl Store {
    /// Takes the driver's lock, which is the right to publish and to promise, without waiting. Returns the holder in words if
    /// another process has it.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn try_lock_driver(&self) -> Result<Result<Lock, String>> {
        Lock::try_take(&self.driver_file(), PUBLISHES)
    }

    /// Waits for the driver's lock without a limit, in the order of the callers: a driver waits until the one before it
    /// ends.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn lock_driver(&self) -> Result<Lock> {
        Lock::take(&self.driver_file(), None, PUBLISHES)
    }

    /// Waits for the turn of a claim, which excludes work on it in other processes. Threads of one process have turns of
    /// their own.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn claim_turn(&self, uid: &str) -> Result<ByteLock> {
        let path = self.driver_file();
        let Ok(file) = hold::<Infallible>(&path, |file| {
            effect::lock_byte(&file, byte_of(uid.as_bytes()), true)
                .context(|| format!("lock {}", path.display()))?;
            Ok(Ok(file))
        })?;
        Ok(ByteLock { _file: file })
    }

    fn driver_file(&self) -> PathBuf {
        self.dir().join(DRA)
    }
}

const DCGM: &str = "dcgm.lock";
const DCGM_NOTE: &str = "dcgm-reload.json";
/// The longest note that is read, in bytes.
const MAX_NOTE: u64 = 64 * 1024;

/// The turn of a reload, until it is dropped or its process ends.
#[derive(Debug)]
pub struct ReloadTurn {
    _lock: Lock,
    note: PathBuf,
}

impl Store {
    /// Waits for the turn of a reload.
    ///
    /// # Errors
    /// The lock file cannot be used, or the turn did not come in this time.
    pub fn reload_turn(&self, timeout: Duration) -> Result<ReloadTurn> {
        let lock = Lock::take(
            &self.dir().join(DCGM),
            Some(timeout),
            "reloads dcgm-exporter",
        )?;
        Ok(ReloadTurn {
            _lock: lock,
            note: self.dir().join(DCGM_NOTE),
        })
    }
}

impl ReloadTurn {
    /// Returns the note of the last reload. None without one that can be read.
    pub fn note(&self) -> Option<Vec<u8>> {
        files::read(&self.note, MAX_NOTE).ok()
    }

    /// Replaces the note.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_note(&self, note: &[u8]) -> Result<()> {
        files::replace(&self.note, note).context(|| format!("write {}", self.note.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A process that another thread forked has the file until it executes a program.
    #[test]
    fn forked_copy_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.lock");
        let lock = Lock::try_take(&path, "test").unwrap().unwrap();
        let _copy = lock.file.try_clone().unwrap();
        assert!(Lock::try_take(&path, "test").unwrap().is_err());
        drop(lock);
        assert!(Lock::try_take(&path, "test").unwrap().is_ok());
    }

    #[test]
    fn absence_alone_means_moved_lock() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, moved) = (dir.path().join("state"), dir.path().join("moved"));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("plan.lock");
        let file = open(&path).unwrap();
        assert!(is_still(&file, &path).unwrap());
        std::fs::rename(&folder, &moved).unwrap();
        assert!(!is_still(&file, &path).unwrap());
        // The folder is gone, so the check fails instead of starting another round.
        std::fs::write(&folder, "").unwrap();
        assert!(is_still(&file, &path).is_err());
    }

    fn store(dir: &std::path::Path) -> Store {
        Store::open(&dir.join("state"), Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn successor_waits_for_drivers_lock() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (first, second) = (store(dir.path()), store(dir.path()));
        let held = first.try_lock_driver().unwrap().unwrap();
        let by = second.try_lock_driver().unwrap().unwrap_err();
        let us = format!("process {} (publishes to Kubernetes)", std::process::id());
        assert!(by.starts_with(&us), "{by}");
        let (told, taken) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let lock = second.lock_driver().unwrap();
            told.send(()).unwrap();
            lock
        });
        assert!(taken.try_recv().is_err());
        drop(held);
        taken.recv().unwrap();
        let held = waiter.join().unwrap();
        assert!(first.try_lock_driver().unwrap().is_err());
        drop(held);
        assert!(first.try_lock_driver().unwrap().is_ok());
    }

    #[test]
    fn claim_waits_for_its_turn() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (first, second) = (store(dir.path()), store(dir.path()));
        let _driver = first.try_lock_driver().unwrap().unwrap();
        let turn = first.claim_turn("a").unwrap();
        drop(second.claim_turn("b").unwrap());
        let (told, taken) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let turn = second.claim_turn("a").unwrap();
            told.send(()).unwrap();
            turn
        });
        assert!(taken.try_recv().is_err());
        drop(turn);
        taken.recv().unwrap();
        drop(waiter.join().unwrap());
    }
}
