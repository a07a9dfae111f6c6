//! Locks a bundle, because two creates of one bundle would start with one slice.
//!
//! All bundles share one file, and each bundle has a byte of it to lock. Only root can open the file,
//! whereas any reader of a bundle's directory could lock that directory. No bundle needs a file of its own
//! that runmig would have to clean up. The directory's inode is the same by every path.

use super::{Store, lock};
use crate::effect;
use crate::error::{Context, Result};
use std::fs::File;

const FILE: &str = "bundles.lock";

/// The lock on a bundle, held until it is dropped or its process ends.
#[derive(Debug)]
pub struct BundleLock {
    _file: File,
}

/// The device and inode of a bundle's directory, which the caller keeps open.
#[derive(Clone, Copy, Debug)]
pub struct BundleId {
    /// The device.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
}

impl Store {
    /// Locks a bundle without waiting. Returns none if another process has the lock.
    pub fn try_lock_bundle(&self, bundle: BundleId) -> Result<Option<BundleLock>> {
        let path = self.dir().join(FILE);
        let id = [bundle.dev.to_le_bytes(), bundle.ino.to_le_bytes()].concat();
        let locked = lock::hold(&path, |file| {
            let locked = effect::lock_byte(&file, lock::byte_of(&id), false);
            let locked = locked.context(|| format!("lock {}", path.display()))?;
            Ok(locked.then_some(file).ok_or(()))
        })?;
        Ok(locked.ok().map(|file| BundleLock { _file: file }))
    }
}
