//! The ledger: the owner of each slice.
//!
//! ```text
//! /run/runmig/                root only
//!   plan.lock                 held by the one create that asks the driver and chooses a place
//!   ledger.lock               held while runmig writes a lease, never longer; names its holder
//!   bundles.lock              a create locks one byte of it for its bundle (bundles.rs)
//!   dra.lock                  held by the driver that publishes to Kubernetes (driver.rs)
//!   gpu-<uuid>.lock           held while the driver creates or destroys an instance on that GPU
//!   leases/<key>.<lease>.…    one lease, replaced atomically (lease.rs); its name: names.rs
//!   instances/<instance>.…    one instance, the same (instance.rs, resource.rs)
//!   operations/<id>           one create at work, which holds the file's lock (operation.rs)
//!   queue/<number>             the ticket of a create that waits for room, in order of arrival (queue.rs)
//!   geometry                   the GPUs' profiles and places, for the next create (src/gpu/geometry.rs)
//!   counters.json              what was counted since the boot, with a lock of its own (counters.rs)
//!   runmig.log                the log, for people
//! ```
//!
//! `<key>` is a hash of the container's key. So a `delete` learns from the names alone that a container has
//! no lease. A lock is a value: a function that needs a lock takes it as an argument.

mod bundles;
mod changes;
mod driver;
mod durable;
mod format;
mod holder;
mod instance;
mod lease;
mod listing;
mod lock;
mod look;
mod names;
mod operation;
mod queue;
mod reload;
mod resource;
mod shown;

pub use bundles::{BundleId, BundleLock};
pub use changes::{Changes, RECORDS, RECORDS_AND_QUEUE};
pub use driver::{ClaimTurn, DriverLock};
pub(crate) use format::{Record, decode, encode};
pub use holder::{Claim, ClaimName, ClaimPod};
pub use holder::{Container, Holder, Key, is_id_of};
pub(crate) use holder::{is_mark, mark_of};
pub use instance::{Attempt, Instance, InstanceState, Origin};
pub use lease::{
    Enforcement, Entry, Held, Lease, LeaseState, Limit, LimitedCgroup, MpsDaemon, Portion, Share,
};
pub use listing::Listing;
pub use listing::{Damaged, DamagedName};
pub(crate) use lock::Lock;
pub(crate) use names::WHOLE_GPU;
pub use names::{InstanceName, Kind, LeaseName, Place};
pub use operation::Operation;
pub(crate) use queue::Ticket;
pub(crate) use queue::UNFINISHED;
pub use queue::{Waiter, Waiting};
pub use reload::ReloadTurn;
pub use resource::{Resource, Slice, WholeGpu};
pub use shown::{HolderNames, Shown};

use crate::error::{Context, Error, Result};
use crate::model::GpuUuid;
use crate::{effect, files, trust};
use nix::errno::Errno;
use nix::unistd::AccessFlags;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

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
    /// The directory cannot be made, or its owner or mode lets users other than root write into it.
    pub fn open(dir: &Path, lock_timeout: Duration) -> Result<Store> {
        let what = || format!("open state directory {}", dir.display());
        let store = Store {
            dir: dir.to_owned(),
            lock_timeout,
        };
        // The check precedes every creation. Through another user's link, runmig would create files where
        // that user likes.
        trust::room_for(dir).context(what)?;
        Store::check_writable(dir).context(what)?;
        for records in [store.leases(), store.instances(), store.operations()] {
            make_folder(&records).context(what)?;
        }
        store.check()?;
        Ok(store)
    }

    /// Fails if the file system of a state directory, which may not exist yet, is read-only.
    ///
    /// # Errors
    /// It is read-only.
    pub fn check_writable(dir: &Path) -> Result<()> {
        let there = dir.ancestors().find(|at| at.exists());
        match nix::unistd::access(there.unwrap_or(dir), AccessFlags::W_OK) {
            Err(e @ Errno::EROFS) => Err(Error::new(e.desc())
                .hint("mount it writable, or set state_dir to a folder of another file system")),
            _ => Ok(()),
        }
    }

    /// Opens the state directory if it has a ledger; for callers that only look or release.
    ///
    /// # Errors
    /// The directory cannot be read, or users other than root may write into it.
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

    /// Opens the state directory for a caller that only looks. Without a ledger it is empty, and stays as it is.
    ///
    /// # Errors
    /// As `existing`.
    pub(crate) fn to_look(dir: &Path, lock_timeout: Duration) -> Result<Store> {
        let existing = Store::existing(dir, lock_timeout)?;
        Ok(existing.unwrap_or_else(|| Store {
            dir: dir.to_owned(),
            lock_timeout,
        }))
    }

    /// Checks the directory's owner and mode. Any writer of leases could have any instance destroyed, or
    /// keep one for ever.
    fn check(&self) -> Result<()> {
        trust::folder(&self.dir)
            .context(|| format!("open state directory {}", self.dir.display()))?;
        for records in [self.leases(), self.instances(), self.operations()] {
            let what = || format!("open {}", records.display());
            let meta = match std::fs::symlink_metadata(&records) {
                // A kill may have come between the folders.
                Err(e) if e.kind() == ErrorKind::NotFound && records != self.leases() => {
                    continue;
                }
                meta => meta.context(what)?,
            };
            if !meta.is_dir() {
                return Err(Error::new(format!("{} is no folder", records.display()))
                    .hint("find the program that replaced it, and remove it"));
            }
            trust::check_metadata(&meta).context(what)?;
        }
        Ok(())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn leases(&self) -> PathBuf {
        self.dir.join("leases")
    }

    pub(crate) fn instances(&self) -> PathBuf {
        self.dir.join("instances")
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

    pub(crate) fn lock_gpu(&self, uuid: &GpuUuid, why: &str) -> Result<Lock> {
        let safe: String = uuid
            .as_str()
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
    pub fn put_lease(&self, lease: &Lease) -> Result<()> {
        let (holder, dir) = (lease.holder.title(), self.store.dir.display());
        let what = || format!("write the lease of {holder} into {dir}");
        put(lease, &self.store.lease_file(lease), what)
    }

    /// Writes an instance. The record is on disk when this returns.
    pub fn put_instance(&self, instance: &Instance) -> Result<()> {
        let dir = self.store.dir.display();
        let what = || format!("write the instance {} into {dir}", instance.id);
        put(instance, &self.store.instance_file(instance), what)
    }

    /// Changes a lease. Returns it as it is then, or none if it is not on record.
    pub fn update_lease(
        &self,
        lease: &Lease,
        change: impl FnOnce(&mut Lease),
    ) -> Result<Option<Lease>> {
        let Some(mut lease) = self.store.lease_now(lease)? else {
            return Ok(None);
        };
        change(&mut lease);
        self.put_lease(&lease)?;
        Ok(Some(lease))
    }

    /// Changes an instance. Returns it as it is then, or none if it is not on record.
    pub fn update_instance(
        &self,
        instance: &Instance,
        change: impl FnOnce(&mut Instance),
    ) -> Result<Option<Instance>> {
        let Some(mut instance) = self.store.instance_now(instance)? else {
            return Ok(None);
        };
        change(&mut instance);
        self.put_instance(&instance)?;
        Ok(Some(instance))
    }

    /// Writes a lease and its new instance. A kill in between leaves a lease without an instance, for which
    /// nothing exists. An error leaves neither.
    pub fn put_new(&self, held: &Held) -> Result<()> {
        let done = { self.put_lease(&held.lease) }.and_then(|()| self.put_instance(&held.instance));
        if done.is_err() {
            // A failed write may also have left the file, without a confirmed sync.
            let _ = self.remove_instance(&held.instance);
            let _ = self.remove_lease(&held.lease);
        }
        done
    }

    /// Removes a new lease and its instance, which the driver did not create. A kill in between leaves a lease
    /// without an instance, so that no process destroys a foreign instance at that place.
    pub(crate) fn forget(&self, held: &Held) -> Result<()> {
        self.remove_instance(&held.instance)?;
        self.remove_lease(&held.lease).map(drop)
    }

    /// Removes the record of a lease, and returns whether it was there.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove_lease(&self, lease: &Lease) -> Result<bool> {
        self.remove_file(&self.store.lease_file(lease))
    }

    /// Removes the record of an instance, and returns whether it was there.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove_instance(&self, instance: &Instance) -> Result<bool> {
        self.remove_file(&self.store.instance_file(instance))
    }

    /// Removes a record, and returns whether it was there.
    pub(crate) fn remove_file(&self, file: &Path) -> Result<bool> {
        durable::remove(file).context(|| format!("remove the lease {}", file.display()))
    }

    /// Removes records whose end needs no confirmation. Returns for each whether it was there.
    pub fn remove_all(&self, files: &[PathBuf]) -> Result<Vec<Result<bool>>> {
        let dirs = [self.store.leases(), self.store.instances()];
        let removed = durable::remove_all(&dirs, files)
            .context(|| format!("remove leases from {}", self.store.dir.display()))?;
        let told = |(removed, file): (std::io::Result<bool>, &PathBuf)| {
            removed.context(|| format!("remove the lease {}", file.display()))
        };
        Ok(removed.into_iter().zip(files).map(told).collect())
    }

    /// Removes the files of killed writers.
    pub(crate) fn sweep(&self) {
        durable::sweep(&self.store.leases());
        durable::sweep(&self.store.instances());
    }
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    effect::make_dir_all(folder, 0o700)
}

fn put<R: Record>(record: &R, file: &Path, what: impl Fn() -> String) -> Result<()> {
    let bytes = encode(record).context(&what)?;
    format::check_size(record, bytes.len()).context(&what)?;
    durable::replace(file, &bytes).context(what)
}

#[cfg(test)]
mod tests;

/// Returns a random id: 32 hexadecimal digits.
pub(crate) fn random_id() -> Result<String> {
    const FILE: &str = "/proc/sys/kernel/random/uuid";
    let uuid = files::read_text(Path::new(FILE), 64).context(|| format!("read {FILE}"))?;
    Ok(uuid.trim().replace('-', ""))
}

impl Store {
    /// Returns a text that stays the same for a ledger's life: device, inode and birth time of its folder.
    /// It omits the birth time if the file system (tmpfs) has none; such file systems do not soon reuse
    /// inodes. Returns none if the folder cannot be read.
    pub fn identity(&self) -> Option<String> {
        let meta = std::fs::metadata(self.leases()).ok()?;
        let birth = meta
            .created()
            .ok()
            .and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        let birth = birth.map_or(0, |t| t.as_nanos());
        Some(format!("{:x}.{:x}.{birth:x}", meta.dev(), meta.ino()))
    }
}
