//! The places of the counters in their file. Each table leaves room for values of newer versions, so that a
//! version moves no counter of an older one.

use super::words::{Actor, DriverFailure, HolderKind, LeaseKind, Outcome, Part, ResourceKind};
use std::time::Duration;

/// A number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Creates that ended.
    Creates(LeaseKind, HolderKind, Outcome),
    /// Leases that ended, and idle slices that made room.
    Releases(LeaseKind, Actor),
    /// Further tries to destroy an instance.
    DestroyRetries(ResourceKind),
    /// Instances that could not be destroyed.
    Quarantines(ResourceKind),
    /// Calls of the driver that failed.
    DriverErrors(DriverFailure),
    /// The time of the last complete collection, in seconds since 1970.
    LastCollection,
}

/// A distribution of times in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Creates that ended with a container.
    Create(LeaseKind, Part),
    /// Releases.
    Release(LeaseKind),
}

/// The upper bounds of the classes of times, in milliseconds.
pub const BOUNDS_MS: [u64; 14] = [
    5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000,
];

/// The longest lists of labels that the file has room for.
const KINDS: usize = 6;
const HOLDERS: usize = 3;
const OUTCOMES: usize = 16;
const PARTS: usize = 5;
const ACTORS: usize = 12;
const RESOURCES: usize = 6;
/// The classes of times, the one without a bound, and the sum.
const CLASSES: usize = BOUNDS_MS.len() + 2;
const SUM: usize = CLASSES - 1;

/// NVML's codes up to this one have a place of their own.
const CODES: usize = 40;
/// The codes and reasons beyond.
const UNKNOWN_CODE: u32 = 999;
const FAILURES: usize = CODES + 3;

const CREATES: usize = 0;
const CREATE_TIMES: usize = CREATES + KINDS * HOLDERS * OUTCOMES;
const RELEASES: usize = CREATE_TIMES + KINDS * PARTS * CLASSES;
const RELEASE_TIMES: usize = RELEASES + KINDS * ACTORS;
const RETRIES: usize = RELEASE_TIMES + KINDS * CLASSES;
const QUARANTINES: usize = RETRIES + RESOURCES;
const ERRORS: usize = QUARANTINES + RESOURCES;
const MOMENTS: usize = ERRORS + FAILURES;
/// The number of numbers that this version uses.
pub(super) const USED: usize = MOMENTS + 1;
/// The number of numbers in the file.
pub(super) const SLOTS: usize = 1016;

const _: () = assert!(
    USED <= SLOTS
        && LeaseKind::ALL.len() <= KINDS
        && HolderKind::ALL.len() <= HOLDERS
        && Outcome::ALL.len() <= OUTCOMES
        && Part::ALL.len() <= PARTS
        && Actor::ALL.len() <= ACTORS
        && ResourceKind::ALL.len() <= RESOURCES
);

impl Counter {
    pub(super) fn slot(self) -> usize {
        match self {
            Counter::Creates(kind, holder, outcome) => {
                CREATES + (kind as usize * HOLDERS + holder as usize) * OUTCOMES + outcome as usize
            }
            Counter::Releases(kind, by) => RELEASES + kind as usize * ACTORS + by as usize,
            Counter::DestroyRetries(resource) => RETRIES + resource as usize,
            Counter::Quarantines(resource) => QUARANTINES + resource as usize,
            Counter::DriverErrors(failure) => ERRORS + failure.index(),
            Counter::LastCollection => MOMENTS,
        }
    }
}

impl Times {
    fn first_slot(self) -> usize {
        match self {
            Times::Create(kind, part) => {
                CREATE_TIMES + (kind as usize * PARTS + part as usize) * CLASSES
            }
            Times::Release(kind) => RELEASE_TIMES + kind as usize * CLASSES,
        }
    }

    /// Returns the place of the class of a time.
    pub(super) fn slot(self, time: Duration) -> usize {
        let is_in = |bound: &u64| time <= Duration::from_millis(*bound);
        let class = BOUNDS_MS.iter().position(is_in);
        self.first_slot() + class.unwrap_or(BOUNDS_MS.len())
    }

    /// Returns the places of all classes, by bound, the one without a bound last.
    pub(super) fn classes(self) -> std::ops::RangeInclusive<usize> {
        self.first_slot()..=self.first_slot() + BOUNDS_MS.len()
    }

    /// Returns the place of the sum in nanoseconds.
    pub(super) fn sum(self) -> usize {
        self.first_slot() + SUM
    }
}

impl DriverFailure {
    /// All failures with a counter of their own.
    pub fn all() -> impl Iterator<Item = DriverFailure> {
        { (1..CODES as u32).chain([UNKNOWN_CODE]) }
            .map(DriverFailure::Code)
            .chain([DriverFailure::Library, DriverFailure::Answer])
    }

    /// Returns the value of the label: the number of NVML's return code, or a word. A code without a counter of its own
    /// counts as unknown, like NVML's 999.
    pub fn word(self) -> String {
        match self {
            DriverFailure::Code(code) => code.to_string(),
            DriverFailure::Library => "library".to_owned(),
            DriverFailure::Answer => "answer".to_owned(),
        }
    }

    fn index(self) -> usize {
        match self {
            DriverFailure::Code(code) if (code as usize) < CODES => code as usize,
            DriverFailure::Code(_) => CODES,
            DriverFailure::Library => CODES + 1,
            DriverFailure::Answer => CODES + 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_counters_share_a_slot() {
        let mut all: Vec<usize> = Vec::new();
        for kind in LeaseKind::ALL {
            for holder in HolderKind::ALL {
                let of = |outcome: &Outcome| Counter::Creates(*kind, *holder, *outcome).slot();
                all.extend(Outcome::ALL.iter().map(of));
            }
            let of = |by: &Actor| Counter::Releases(*kind, *by).slot();
            all.extend(Actor::ALL.iter().map(of));
            let parts = Part::ALL.iter().map(|part| Times::Create(*kind, *part));
            for times in parts.chain([Times::Release(*kind)]) {
                all.extend(times.classes());
                all.push(times.sum());
            }
        }
        for resource in ResourceKind::ALL {
            all.push(Counter::DestroyRetries(*resource).slot());
            all.push(Counter::Quarantines(*resource).slot());
        }
        all.extend(DriverFailure::all().map(|failure| Counter::DriverErrors(failure).slot()));
        all.push(Counter::LastCollection.slot());
        let distinct: BTreeSet<usize> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(distinct.last().is_some_and(|last| *last < USED));
    }

    #[test]
    fn time_belongs_to_first_bound_above() {
        let times = Times::Release(LeaseKind::Share);
        let class = |time| times.slot(time) - times.classes().start();
        assert_eq!(class(Duration::ZERO), 0);
        assert_eq!(class(Duration::from_millis(5)), 0);
        assert_eq!(class(Duration::from_micros(5001)), 1);
        assert_eq!(class(Duration::from_secs(301)), BOUNDS_MS.len());
    }
}
