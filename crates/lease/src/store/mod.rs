//! The ledger: the owner of each slice.
//!
//! ```text
//! /run/runmig/                root only
//!   ledger.json, .1           all instances, leases, tickets and counters, and the generation before (file.rs, queue.rs)
//!   ledger.lock               held while runmig writes the ledger, never longer; names its holder and the generation
//!   plan.lock                 held by the one create that asks the driver and chooses a place
//!   bundles.lock              a create locks one byte of it for its bundle (lock.rs)
//!   dra.lock                  held by the driver that publishes to Kubernetes (lock.rs)
//!   gpu-<uuid>.lock           held while the driver creates or destroys an instance on that GPU
//!   operations/<id>           one create at work, which holds the file's lock (operation.rs)
//!   geometry                   the GPUs' profiles and places, for the next create (src/gpu/geometry.rs)
//!   runmig.log                the log, for people
//! ```
//!
//! A lock is a value: a function that needs a lock takes it as an argument.

mod accounts;
mod changes;
mod file;
mod holder;
mod instance;
mod lease;
mod ledger;
mod lock;
mod operation;
mod queue;
mod resource;
#[cfg(test)]
pub(crate) mod tests;
mod words;

pub use changes::Changes;
pub(crate) use file::{FILE as LEDGER, Header, State, ledger_of_body, rewritten_ledger};
pub use holder::{Claim, ClaimName, ClaimPod, Container, Holder, Key, is_id_of};
pub(crate) use holder::{is_mark, mark_of};
pub use instance::{Attempt, Instance, InstanceState, Origin};
pub use lease::{
    Enforcement, Entry, Held, Lease, LeaseState, Limit, LimitedCgroup, MpsDaemon, Portion, Share,
};
pub use ledger::{Ledger, Listing};
pub use lock::{BundleId, ByteLock, Lock, ReloadTurn};
pub use operation::Operation;
pub(crate) use operation::killed;
pub(crate) use queue::Ticket;
pub use queue::{Waiter, Waiting};
pub(crate) use resource::WHOLE_GPU;
pub use resource::{Resource, Slice, WholeGpu};
pub use words::{HolderNames, Shown};

use crate::counters::Counts;
use crate::error::{Context, Error, Result};
use crate::model::{BootId, GpuUuid};
use crate::{effect, files, trust};
use nix::errno::Errno;
use nix::unistd::AccessFlags;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The state directory of one machine.
pub struct Store {
    dir: PathBuf,
    lock_timeout: Duration,
    file: file::LedgerFile,
    /// The counts that are not in the ledger yet.
    counts: Arc<Mutex<Counts>>,
}

impl Store {
    fn at(dir: &Path, lock_timeout: Duration) -> Store {
        Store {
            dir: dir.to_owned(),
            lock_timeout,
            file: file::LedgerFile::new(dir),
            counts: Arc::default(),
        }
    }

    /// Opens the state directory, and creates it if it is missing.
    ///
    /// # Errors
    /// The directory cannot be made, or its owner or mode lets users other than root write into it.
    pub fn open(dir: &Path, lock_timeout: Duration) -> Result<Store> {
        let what = || format!("open state directory {}", dir.display());
        let store = Store::at(dir, lock_timeout);
        // The check precedes every creation. Through another user's link, runmig would create files where
        // that user likes.
        Store::check_place(dir)?;
        make_folder(&store.operations()).context(what)?;
        trust::folder(dir).context(what)?;
        store.check()?;
        Ok(store)
    }

    /// Checks the place of a state directory, which may not exist yet.
    ///
    /// # Errors
    /// Users other than root can write to it or above it, it is not a folder, or its file system is read-only.
    pub fn check_place(dir: &Path) -> Result<()> {
        let what = || format!("open state directory {}", dir.display());
        trust::room_for(dir).context(what)?;
        if dir.exists() && !dir.is_dir() {
            let no_folder = Error::new("it is not a folder").hint("set state_dir to a folder");
            return Err(no_folder).context(what);
        }
        let there = dir.ancestors().find(|at| at.exists());
        match nix::unistd::access(there.unwrap_or(dir), AccessFlags::W_OK) {
            Err(e @ Errno::EROFS) => Err(Error::new(e.desc())
                .hint("mount it writable, or set state_dir to a folder of another file system"))
            .context(what),
            _ => Ok(()),
        }
    }

    /// Opens the state directory if it has a ledger; for callers that only look or release.
    ///
    /// # Errors
    /// The directory cannot be read, or users other than root may write into it.
    pub fn existing(dir: &Path, lock_timeout: Duration) -> Result<Option<Store>> {
        let store = Store::at(dir, lock_timeout);
        let is_there = |path: &Path| {
            // A failed look does not prove that nothing is there.
            let there = files::if_there(std::fs::symlink_metadata(path));
            let there = there.context(|| format!("open state directory {}", path.display()));
            there.map(|there| there.is_some())
        };
        if !is_there(dir)? {
            return Ok(None);
        }
        // Another user's folder proves nothing about leases, and whoever writes leases could have any instance destroyed.
        trust::folder(dir).context(|| format!("open state directory {}", dir.display()))?;
        // A kill may have come before the first lease.
        let mut has_part = false;
        for part in [
            file::FILE,
            file::LOCK,
            file::BEFORE,
            operation::FOLDER,
            accounts::FOLDER,
        ] {
            has_part |= is_there(&dir.join(part))?;
        }
        if !has_part {
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
        Ok(existing.unwrap_or_else(|| Store::at(dir, lock_timeout)))
    }

    /// Checks what is in a directory that is root's.
    fn check(&self) -> Result<()> {
        let operations = self.operations();
        let what = || format!("open {}", operations.display());
        let meta = files::if_there(std::fs::symlink_metadata(&operations)).context(what)?;
        // A kill may have come before it was made.
        let Some(meta) = meta else { return Ok(()) };
        if !meta.is_dir() {
            return Err(
                Error::new(format!("{} is not a folder", operations.display()))
                    .hint("find the program that replaced it, and remove it"),
            );
        }
        trust::check_metadata(&meta).context(what)
    }

    /// Returns the store for this boot. Leases of an earlier boot then count as ended.
    pub fn at_boot(mut self, boot: &BootId) -> Store {
        self.file.boot = Some(boot.clone());
        self
    }

    /// Returns the random id of the ledger. None if the ledger cannot be read, or does not exist yet.
    pub fn identity(&self) -> Option<String> {
        let content = self.file.content().ok()?;
        Some(content.header.id.clone()).filter(|id| !id.is_empty())
    }

    fn boot(&self) -> &str {
        self.file.boot.as_ref().map_or("", BootId::as_str)
    }

    /// Returns where to count. Each change of the ledger takes these counts along, and the end of the store writes the
    /// rest.
    pub(crate) fn counter(&self) -> Arc<Mutex<Counts>> {
        Arc::clone(&self.counts)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Locks the choice of a place. This lock is separate from the ledger's. A create that makes a slice
    /// keeps a GPU busy, and must record its progress without waiting for creates that still choose.
    pub(crate) fn lock_plan(&self, why: &str) -> Result<Lock> {
        let file = self.dir.join("plan.lock");
        Lock::take(&file, Some(self.lock_timeout), why).context(|| "lock the choice of a place")
    }

    pub(crate) fn lock_gpu(&self, uuid: &GpuUuid, why: &str) -> Result<Lock> {
        let is_safe = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        let safe: String = uuid.as_str().chars().filter(is_safe).collect();
        let file = self.dir.join(format!("gpu-{safe}.lock"));
        Lock::take(&file, Some(self.lock_timeout), why).context(|| format!("lock GPU {uuid}"))
    }
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    effect::make_dir_all(folder, 0o700)
}

/// Returns a random id: 32 hexadecimal digits.
pub(crate) fn random_id() -> Result<String> {
    const FILE: &str = "/proc/sys/kernel/random/uuid";
    let uuid = files::read_text(Path::new(FILE), 64).context(|| format!("read {FILE}"))?;
    Ok(uuid.trim().replace('-', ""))
}
