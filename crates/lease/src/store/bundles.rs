//! Locks a bundle, because two creates of one bundle would start with one slice.
//!
//! All bundles share one file, and each bundle has a byte of it to lock. Only root can open the file,
//! whereas any reader of a bundle's directory could lock that directory. No bundle needs a file of its own
//! that runmig would have to clean up. The directory's inode is the same by every path.

use super::{Store, lock};
use crate::effect;
use crate::error::{Context, Result};
use sha2::{Digest, Sha256};
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

impl BundleId {
    /// Returns the position of the bundle's byte. Two bundles at one position would only exclude each
    /// other.
    fn offset(self) -> i64 {
        let mut hash = Sha256::new();
        hash.update(self.dev.to_le_bytes());
        hash.update(self.ino.to_le_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        // The last position is left out, because a lock there would overflow.
        i64::from_le_bytes(first) & (i64::MAX >> 1)
    }
}

impl Store {
    /// Locks a bundle without waiting. Returns none if another process has the lock.
    pub fn try_lock_bundle(&self, bundle: BundleId) -> Result<Option<BundleLock>> {
        let path = self.dir().join(FILE);
        let what = || format!("lock {}", path.display());
        for _ in 0..lock::MAX_REPLACED {
            let file = lock::open(&path)?;
            if !effect::lock_byte(&file, bundle.offset(), false).context(what)? {
                return Ok(None);
            }
            // If another process removed the file, lock the new one.
            if lock::is_still(&file, &path).context(what)? {
                return Ok(Some(BundleLock { _file: file }));
            }
        }
        Err(lock::replaced(&path))
    }
}
