//! The ledger: the owner of each slice.
//!
//! ```text
//! /run/runmig/                root only
//!   plan.lock                 held by the one create that asks the driver and chooses a place
//!   ledger.lock               held while runmig writes a lease, never longer; names its holder
//!   bundles.lock              a create locks one byte of it for its bundle (bundles.rs)
//!   gpu-<uuid>.lock           held while the driver creates or destroys an instance on that GPU
//!   leases/<key>.<lease>.…    one lease, replaced atomically (record.rs); its name: record_name.rs
//!   queue/<number>             the ticket of a create that waits for room, in order of arrival (queue.rs)
//!   geometry                   the GPUs' profiles and places, for the next create (src/gpu/geometry.rs)
//!   runmig.log                the log, for people
//! ```
//!
//! `<key>` is a hash of the container's key. So a `delete` learns from the names alone that a container has
//! no lease. A lock is a value: a function that needs a lock takes it as an argument.

mod bundles;
mod durable;
mod identity;
mod lock;
mod look;
mod queue;
mod record;
mod record_name;

pub use bundles::{BundleId, BundleLock};
pub(crate) use lock::Lock;
pub use look::{Damaged, Neighbours};
pub(crate) use queue::Ticket;
pub(crate) use queue::UNFINISHED;
pub use queue::{Waiter, Waiting};
pub(crate) use record::encode;
pub use record::{Attempt, Holder, Key, Lease, Slice, State};
pub(crate) use record::{decode, frame};
pub use record_name::{Ownership, RecordName};

use crate::error::{Context, Error, Result};
use crate::trust;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The state directory of one machine.
pub struct Store {
    dir: PathBuf,
    lock_timeout: Duration,
}

/// The right to write leases.
pub struct Ledger<'a> {
    store: &'a Store,
    _lock: Lock,
}

impl Store {
    /// Opens the state directory, and creates it if it is missing.
    ///
    /// # Errors
    /// The directory cannot be made, or its owner or mode lets others than root write into it.
    pub fn open(dir: &Path, lock_timeout: Duration) -> Result<Store> {
        let what = || format!("open state directory {}", dir.display());
        let store = Store {
            dir: dir.to_owned(),
            lock_timeout,
        };
        // The check precedes every creation. Through another user's link, runmig would create files where
        // that user likes.
        trust::room_for(dir).context(what)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(store.leases())
            .context(what)?;
        store.check()?;
        Ok(store)
    }

    /// Opens the state directory if it has a ledger; for callers that only look or release.
    ///
    /// # Errors
    /// The directory cannot be read, or others than root may write into it.
    pub fn existing(dir: &Path, lock_timeout: Duration) -> Result<Option<Store>> {
        let store = Store {
            dir: dir.to_owned(),
            lock_timeout,
        };
        let is_there = |path: &Path| match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            // A failed look does not prove that nothing is there.
            looked => looked
                .map(|_| true)
                .context(|| format!("open state directory {}", path.display())),
        };
        if !is_there(dir)? {
            return Ok(None);
        }
        // Another user's folder proves nothing about leases.
        trust::folder(dir).context(|| format!("open state directory {}", dir.display()))?;
        if !is_there(&store.leases())? {
            return Ok(None);
        }
        store.check()?;
        Ok(Some(store))
    }

    /// Checks the directory's owner and mode. Any writer of leases could have any instance destroyed, or
    /// keep one for ever.
    fn check(&self) -> Result<()> {
        trust::folder(&self.dir)
            .context(|| format!("open state directory {}", self.dir.display()))?;
        let leases = self.leases();
        let what = || format!("open {}", leases.display());
        let meta = std::fs::symlink_metadata(&leases).context(what)?;
        if !meta.is_dir() {
            return Err(Error::new(format!("{} is no folder", leases.display()))
                .hint("find the program that replaced it, and remove it"));
        }
        trust::check_metadata(&meta).context(what)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn leases(&self) -> PathBuf {
        self.dir.join("leases")
    }

    /// Locks the ledger for writing. The error of a waiter that times out shows `why`.
    ///
    /// # Errors
    /// One holder keeps the lock for longer than `lock_timeout`, or the lock file cannot be used.
    pub fn lock(&self, why: &str) -> Result<Ledger<'_>> {
        let lock = Lock::take(&self.dir.join("ledger.lock"), self.lock_timeout, why)
            .context(|| "lock the ledger")?;
        Ok(Ledger {
            store: self,
            _lock: lock,
        })
    }

    /// Locks the choice of a place. This lock is separate from the ledger's. A create that makes a slice
    /// keeps a GPU busy, and must record its progress without waiting for creates that still choose.
    pub(crate) fn lock_plan(&self, why: &str) -> Result<Lock> {
        let file = self.dir.join("plan.lock");
        Lock::take(&file, self.lock_timeout, why).context(|| "lock the choice of a place")
    }

    pub(crate) fn lock_gpu(&self, uuid: &str, why: &str) -> Result<Lock> {
        let safe: String = uuid
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
            .collect();
        Lock::take(
            &self.dir.join(format!("gpu-{safe}.lock")),
            self.lock_timeout,
            why,
        )
        .context(|| format!("lock GPU {uuid}"))
    }
}

impl Ledger<'_> {
    /// Writes a lease. The record is on disk when this returns.
    pub fn put(&self, lease: &Lease) -> Result<()> {
        let file = self.file(lease);
        let what = || {
            format!(
                "write the lease of container {} into {}",
                lease.holder.key.id,
                self.store.dir.display()
            )
        };
        let bytes = record::encode(lease).context(what)?;
        record::check_size(lease, bytes.len()).context(what)?;
        durable::replace(&file, &bytes).context(what)
    }

    /// Changes a lease. Returns its new state, or none if it is not on record.
    pub fn update(&self, id: &str, change: impl FnOnce(&mut Lease)) -> Result<Option<Lease>> {
        let Some(mut lease) = self.store.get(id)? else {
            return Ok(None);
        };
        change(&mut lease);
        self.put(&lease)?;
        Ok(Some(lease))
    }

    /// Writes `come` and removes `gone`, which name the same slice. A kill in between leaves both, and a
    /// release of one sees the other.
    pub fn replace(&self, gone: &Lease, come: &Lease) -> Result<()> {
        let done = self.put(come).and_then(|()| self.remove(gone));
        if done.is_err() && self.file(gone).exists() {
            // A failed write may also have left the file, without a confirmed sync.
            let _ = self.remove(come);
        }
        done
    }

    /// Replaces an unreadable record by `come`.
    pub(crate) fn replace_damaged(&self, gone: &Damaged, come: &Lease) -> Result<()> {
        let done = self.put(come).and_then(|()| self.remove_damaged(gone));
        if done.is_err() && gone.file.exists() {
            let _ = self.remove(come);
        }
        done
    }

    /// Removes the record of a lease.
    ///
    /// # Errors
    /// The file cannot be removed. A missing one is no error.
    pub fn remove(&self, lease: &Lease) -> Result<()> {
        let file = self.file(lease);
        durable::remove(&file).context(|| format!("remove the lease {}", file.display()))
    }

    /// Removes records whose end needs no confirmation. Returns a result for each.
    pub fn remove_all(&self, files: &[PathBuf]) -> Result<Vec<Result<()>>> {
        let leases = self.store.leases();
        let removed = durable::remove_all(&leases, files)
            .context(|| format!("remove leases from {}", leases.display()))?;
        let told = |(removed, file): (std::io::Result<()>, &PathBuf)| {
            removed.context(|| format!("remove the lease {}", file.display()))
        };
        Ok(removed.into_iter().zip(files).map(told).collect())
    }

    pub(crate) fn remove_damaged(&self, damaged: &Damaged) -> Result<()> {
        let file = &damaged.file;
        durable::remove(file).context(|| format!("remove the lease {}", file.display()))
    }

    /// Removes the files of killed writers.
    pub(crate) fn sweep(&self) {
        durable::sweep(&self.store.leases());
    }

    fn file(&self, lease: &Lease) -> PathBuf {
        self.store.file(lease)
    }
}

#[cfg(test)]
mod tests;
