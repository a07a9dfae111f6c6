//! Tells one ledger from another that has taken its place.

use super::Store;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

impl Store {
    /// Returns a word that a ledger keeps for its life: device, inode and birth of its folder. The
    /// birth is left out where the file system has none, as inodes of such (tmpfs) do not come again
    /// soon. None where the folder cannot be looked at.
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
