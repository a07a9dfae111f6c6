//! A lock that dies with its holder, is waited for only so long, and says who has it.

use crate::error::{Context, Error, Result};
use crate::process;
use fs2::FileExt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    pub fn take(path: &Path, timeout: Duration, why: &str) -> Result<Lock> {
        loop {
            let file = open(path)?;
            let locked = match file.try_lock_exclusive() {
                Ok(()) => Some(Ok(file)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => wait(file, path, timeout)?,
                Err(e) => Some(Err(e)),
            };
            let what = || format!("lock {}", path.display());
            match locked.transpose().context(what)? {
                Some(mut file) if is_still(&file, path) => {
                    sign(&mut file, why);
                    return Ok(Lock { _file: file });
                }
                // Somebody took the file away while we waited for it: lock the one there now.
                Some(_) => {}
                None => {
                    return Err(Error::new(format!(
                        "{} is held by {}, waited {}",
                        path.display(),
                        named(&signature(path)?),
                        humantime::format_duration(timeout)
                    ))
                    .hint("lock_timeout in the configuration is how long to wait"));
                }
            }
        }
    }
}

/// None when one holder has had it for that long: a queue that moves on is waited for, whatever its
/// length.
///
/// The kernel lets waiters in in their order, which no polling does, but its wait has no end: so a
/// thread waits, and is left alone when it is time. Should it still get the lock, nobody takes that
/// from it, and it is let go at once. On success the thread has ended: who forks later has one.
fn wait(file: File, path: &Path, timeout: Duration) -> Result<Option<std::io::Result<File>>> {
    let (done, lock) = std::sync::mpsc::channel();
    let mut holder = signature(path)?;
    let waiter = std::thread::Builder::new()
        .stack_size(64 * 1024)
        .spawn(move || {
            let locked = file.lock_exclusive().map(|()| file);
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
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .context(what)?;
    if !file.metadata().context(what)?.is_file() {
        return Err(Error::new(format!("{} is no regular file", path.display()))
            .hint("nothing of ours is anything else; remove it"));
    }
    Ok(file)
}

fn is_still(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// Who has the lock and what for. Only told to people, so a failure to write it is no failure.
fn sign(file: &mut File, why: &str) {
    let _ = file.set_len(0);
    let _ = file.rewind();
    let _ = write!(file, "process {} ({why})", std::process::id());
}

/// What the holder wrote.
fn signature(path: &Path) -> Result<String> {
    let mut text = String::new();
    let _ = open(path)?.take(200).read_to_string(&mut text);
    Ok(text)
}

fn named(signature: &str) -> String {
    let pid = signature.split_whitespace().nth(1);
    match pid.and_then(|p| p.parse().ok()).and_then(process::of) {
        Some(process) => format!(
            "{} [{}]",
            crate::error::printable(signature),
            process::name(process.pid)
        ),
        None => "a process that cannot be named".to_owned(),
    }
}
