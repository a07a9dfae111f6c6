//! Counts of creates, releases and the driver's errors since the boot. They lie in one file of the state directory,
//! outlive every process, and need no process of their own.
//!
//! Each process maps the file and adds to its numbers by atomic operations. So no process waits for another, even if
//! that one is stopped, and a killed one loses at most what it had not added. The file is of one boot, since neither
//! instances nor leases survive one.
//!
//! # Format
//! The file `counters.BOOT-ID` has 8 KiB: a header of 64 bytes, then 1016 numbers of 64 bits, in the byte order of the
//! machine. The header has the bytes `runmigct`, the version (32 bits, now 1), 32 bits of zeros, the time of the first
//! count in nanoseconds since 1970 (64 bits), and the boot id in 40 bytes, filled up with zeros. `layout` has the place of
//! each number. A newer version of the format would make a new file, and this one move it aside.

mod file;
mod layout;
mod words;

pub use layout::{BOUNDS_MS, Counter, Times};
pub use words::{Actor, DriverFailure, HolderKind, LeaseKind, Outcome, Part, ResourceKind};

use crate::error::Result;
use crate::model::BootId;
use file::Mapped;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Removes the unfinished files of killed processes.
pub(crate) fn sweep(state_dir: &Path) {
    file::sweep(state_dir);
}

/// The counters of this boot, open for additions.
pub(crate) struct Counters(Mapped);

impl Counters {
    /// Opens the counters of a boot, and makes them if they are missing. A file that is damaged, or of a newer version,
    /// is moved aside, and the log tells that.
    ///
    /// # Errors
    /// The state directory cannot be written to, or another process is about to move the file aside.
    pub(crate) fn open(state_dir: &Path, boot: &BootId) -> Result<Counters> {
        Mapped::open(state_dir, boot).map(Counters)
    }

    /// Adds one.
    pub(crate) fn count(&self, counter: Counter) {
        self.0.add(counter.slot(), 1);
    }

    /// Adds a time to a distribution.
    pub(crate) fn observe(&self, times: Times, time: Duration) {
        self.0.add(times.slot(time), 1);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.add(times.sum(), nanos);
    }

    /// Sets a moment, which never goes back.
    pub(crate) fn set_moment(&self, counter: Counter, seconds: u64) {
        self.0.raise(counter.slot(), seconds);
    }
}

/// The counters of a boot at one moment.
#[derive(Debug)]
pub struct Counts {
    /// The time of the first count.
    pub since: SystemTime,
    values: Vec<u64>,
}

/// A distribution of times at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// The number of times in each class, by bound, the one without a bound last.
    pub classes: Vec<u64>,
    /// The sum of all times.
    pub sum: Duration,
}

impl Counts {
    /// Reads the counters of a boot. Returns none if nothing was counted yet. It changes nothing and takes no lock.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or of a newer version.
    pub fn read(state_dir: &Path, boot: &BootId) -> Result<Option<Counts>> {
        let read = file::read(state_dir, boot)?;
        Ok(read.map(|(since, values)| Counts { since, values }))
    }

    /// Returns a number.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values[counter.slot()]
    }

    /// Returns a distribution.
    pub fn times(&self, times: Times) -> Distribution {
        Distribution {
            classes: times.classes().map(|slot| self.values[slot]).collect(),
            sum: Duration::from_nanos(self.values[times.sum()]),
        }
    }
}
