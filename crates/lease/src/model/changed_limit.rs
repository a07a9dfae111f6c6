//! A memory limit that others changed.

use std::fmt;

/// A limit that is not that of the share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedLimit {
    /// The limit in MiB; 0 is none.
    pub told_mib: u64,
    /// The limit of the share, in MiB.
    pub share_mib: u64,
}

impl ChangedLimit {
    /// Returns the limit in whole GiB, cut; 0 also if there is none.
    pub fn gib(&self) -> u64 {
        self.told_mib / 1024
    }

    /// Returns whether it lets processes take more than the share.
    pub fn is_raised(&self) -> bool {
        self.told_mib == 0 || self.told_mib > self.share_mib
    }
}

impl fmt::Display for ChangedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.told_mib {
            0 => f.write_str("none"),
            mib if mib % 1024 == 0 => write!(f, "{}Gi", mib / 1024),
            mib => write!(f, "{mib}Mi"),
        }
    }
}
