//! Distinguishes a ledger from another that has replaced it.

use super::Store;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

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
