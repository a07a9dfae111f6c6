//! Counts of creates, releases and the driver's errors since the boot. They lie in the ledger, and outlive every process.
//!
//! A process keeps what it counts until its next change of the ledger, which takes the counts along.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The upper bounds of the classes of times, in milliseconds.
pub const BOUNDS_MS: [u64; 14] = [
    5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000,
];

/// The counts of a boot, or those that one process adds to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    counts: BTreeMap<String, u64>,
    times: BTreeMap<String, Distribution>,
    /// The time of the last complete collection, in seconds since 1970. 0 before the first.
    pub last_collection: u64,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// The number of times in each class, by bound, the one without a bound last.
    pub classes: [u64; BOUNDS_MS.len() + 1],
    /// The sum of all times.
    pub sum: Duration,
}

impl Counts {
    pub(crate) fn add(&mut self, more: &Counts) {
        for (key, n) in &more.counts {
            let all = self.counts.entry(key.clone()).or_default();
            *all = all.saturating_add(*n);
        }
        for (key, times) in &more.times {
            let all = self.times.entry(key.clone()).or_default();
            for (all, n) in all.classes.iter_mut().zip(times.classes) {
                *all = all.saturating_add(n);
            }
            all.sum = all.sum.saturating_add(times.sum);
        }
        self.last_collection = self.last_collection.max(more.last_collection);
    }

    /// Returns whether nothing is counted.
    pub fn is_empty(&self) -> bool {
        *self == Counts::default()
    }

    /// Adds one.
    pub(crate) fn count(&mut self, counter: Counter) {
        *self.counts.entry(counter.key()).or_default() += 1;
    }

    /// Adds a time to a distribution.
    pub(crate) fn observe(&mut self, times: Times, time: Duration) {
        let all = self.times.entry(times.key()).or_default();
        let is_in = |bound: &u64| time <= Duration::from_millis(*bound);
        let class = BOUNDS_MS.iter().position(is_in);
        all.classes[class.unwrap_or(BOUNDS_MS.len())] += 1;
        all.sum += time;
    }

    /// Returns a number.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counts.get(&counter.key()).copied().unwrap_or(0)
    }

    /// Returns a distribution. None without any time.
    pub fn times(&self, times: Times) -> Option<&Distribution> {
        self.times.get(&times.key())
    }

    /// Returns the failed calls of the driver, by NVML's return code or by a word.
    pub fn driver_errors(&self) -> impl Iterator<Item = (&str, u64)> {
        { self.counts.iter() }.filter_map(|(key, n)| Some((key.strip_prefix(DRIVER_ERRORS)?, *n)))
    }
}

/// A number in the ledger.
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
}

/// A distribution of times in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Creates that ended with a container.
    Create(LeaseKind, Part),
    /// Releases.
    Release(LeaseKind),
}

/// The reason of a failed call of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverFailure {
    /// NVML's return code.
    Code(u32),
    /// The library is missing, or lacks a function.
    Library,
    /// The library's answer is unusable.
    Answer,
}

const DRIVER_ERRORS: &str = "driver_errors/";
/// NVML's codes lie below this one. Others count as its code for an unknown error, so that there is a limit.
const CODES: u32 = 40;
const UNKNOWN_CODE: u32 = 999;

impl Counter {
    fn key(self) -> String {
        match self {
            Counter::Creates(kind, holder, outcome) => {
                let (kind, holder) = (kind.word(), holder.word());
                format!("creates/{kind}/{holder}/{}", outcome.word())
            }
            Counter::Releases(kind, by) => format!("releases/{}/{}", kind.word(), by.word()),
            Counter::DestroyRetries(resource) => format!("destroy_retries/{}", resource.word()),
            Counter::Quarantines(resource) => format!("quarantines/{}", resource.word()),
            Counter::DriverErrors(failure) => match failure {
                DriverFailure::Code(code) if code < CODES => format!("{DRIVER_ERRORS}{code}"),
                DriverFailure::Code(_) => format!("{DRIVER_ERRORS}{UNKNOWN_CODE}"),
                DriverFailure::Library => format!("{DRIVER_ERRORS}library"),
                DriverFailure::Answer => format!("{DRIVER_ERRORS}answer"),
            },
        }
    }
}

impl Times {
    fn key(self) -> String {
        match self {
            Times::Create(kind, part) => format!("create/{}/{}", kind.word(), part.word()),
            Times::Release(kind) => format!("release/{}", kind.word()),
        }
    }
}

/// Declares a label with its values and their words.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of])* $value,)*
        }

        impl $name {
            /// All values.
            pub const ALL: &[$name] = &[$($name::$value,)*];

            /// The words of all values, in their order.
            pub const WORDS: &[&'static str] = &[$($word,)*];

            /// Returns the value of the label.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$value => $word,)*
                }
            }
        }
    };
}

label! {
    /// The kind of a lease's portion.
    LeaseKind {
        /// A MIG slice.
        Slice = "slice",
        /// A share of a GPU.
        Share = "share",
        /// A whole GPU.
        Gpu = "gpu",
        /// A share of a slice.
        Seat = "seat",
    }
}

label! {
    /// The kind of a lease's holder.
    HolderKind {
        /// A container.
        Container = "container",
        /// A claim of Kubernetes.
        Claim = "claim",
    }
}

label! {
    /// The end of a create.
    Outcome {
        /// The container has what runmig made for it.
        Created = "created",
        /// The container has an idle slice.
        Reused = "reused",
        /// The container has an administrator's slice.
        Adopted = "adopted",
        /// The container shares the slice of its pod or claim.
        Shared = "shared",
        /// There was no room, and no time to wait.
        Full = "full",
        /// The free memory slices did not lie side by side, and there was no time to wait.
        Fragmented = "fragmented",
        /// Earlier requests had reserved the room, and there was no time to wait.
        Queued = "queued",
        /// A limit of the policy was reached.
        Limited = "limited",
        /// No wait helps.
        Unsatisfiable = "unsatisfiable",
        /// runmig refused the container or could not record it.
        Refused = "refused",
        /// The driver failed.
        Driver = "driver",
        /// The low-level runtime failed.
        Runtime = "runtime",
        /// The time to wait for room was over.
        TimedOut = "timed_out",
    }
}

label! {
    /// A part of a create's time.
    Part {
        /// All of it.
        Total = "total",
        /// The wait for room.
        Wait = "wait",
        /// Calls of the driver.
        Driver = "driver",
        /// The low-level runtime.
        Runtime = "runtime",
    }
}

label! {
    /// The actor of a release.
    Actor {
        /// A hook of the container.
        Hook = "hook",
        /// The engine's delete.
        Delete = "delete",
        /// A create: its own roll back, or the end of a predecessor.
        Create = "create",
        /// A collection.
        Gc = "gc",
        /// `migctl release`.
        Operator = "operator",
        /// A create that needed the room of an idle slice.
        Eviction = "eviction",
        /// The Kubernetes driver.
        Claim = "claim",
    }
}

label! {
    /// The kind of an instance.
    ResourceKind {
        /// A MIG slice.
        Mig = "mig",
        /// A whole GPU.
        Gpu = "gpu",
        /// The MPS daemon of a lease.
        Mps = "mps",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASES: Counter = Counter::Releases(LeaseKind::Slice, Actor::Hook);

    #[test]
    fn time_belongs_to_first_bound_above() {
        let times = Times::Release(LeaseKind::Share);
        let mut counts = Counts::default();
        for micros in [0, 5_000, 5_001, 7_000, 301_000_000] {
            counts.observe(times, Duration::from_micros(micros));
        }
        let read = counts.times(times).unwrap();
        assert_eq!(read.classes[..3], [2, 2, 0]);
        assert_eq!(read.classes[BOUNDS_MS.len()], 1);
        assert_eq!(read.sum, Duration::from_micros(301_017_001));
    }

    #[test]
    fn unknown_codes_count_as_one() {
        let key = |code| Counter::DriverErrors(DriverFailure::Code(code)).key();
        let keys = [39, 40, u32::MAX].map(key);
        assert_eq!(
            keys,
            ["39", "999", "999"].map(|code| format!("{DRIVER_ERRORS}{code}"))
        );
    }

    #[test]
    fn largest_count_stays() {
        let mut all = Counts::default();
        all.counts.insert(RELEASES.key(), u64::MAX);
        let times = Distribution {
            classes: [u64::MAX; BOUNDS_MS.len() + 1],
            sum: Duration::MAX,
        };
        let release = Times::Release(LeaseKind::Slice);
        all.times.insert(release.key(), times.clone());
        let mut one = Counts::default();
        one.count(RELEASES);
        one.observe(release, Duration::from_secs(1));
        all.add(&one);
        all.add(&all.clone());
        assert_eq!(all.get(RELEASES), u64::MAX);
        assert_eq!(all.times(release), Some(&times));
    }

    #[test]
    fn tells_failed_calls_of_the_driver_alone() {
        let mut counts = Counts::default();
        let failures = [DriverFailure::Library, DriverFailure::Code(2)].map(Counter::DriverErrors);
        for counter in [failures[0], RELEASES, failures[1], failures[0]] {
            counts.count(counter);
        }
        let told: Vec<_> = counts.driver_errors().collect();
        assert_eq!(told, [("2", 1), ("library", 2)]);
    }
}
