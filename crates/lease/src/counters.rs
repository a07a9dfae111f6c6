//! Counts of creates, releases and the driver's errors since the boot. They lie in one file of the state directory and
//! outlive every process.
//!
//! A process adds what it has counted under a lock of the file's own, and replaces the file. It gives up if another
//! process keeps the lock for a second: then its own counts are lost, and nothing else. The file is of one boot, since
//! neither instances nor leases survive one.

use crate::effect;
use crate::error::{Context, Error, Result};
use crate::files::{self, Links};
use crate::model::BootId;
use crate::store::{Lock, Resource};
use crate::trust;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

const FILE: &str = "counters.json";
const DRAFT: &str = ".new-counters.json";
const DAMAGED: &str = "counters.json.damaged";
const LOCK: &str = "counters.lock";
const VERSION: u32 = 1;
/// The longest file that is read, in bytes. One with every counter has some 20,000.
const MAX_SIZE: u64 = 256 << 10;
/// The longest time for which one process may keep the lock from the others.
const LONGEST_HOLD: Duration = Duration::from_secs(1);

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

#[derive(Serialize, Deserialize)]
struct CountersFile {
    version: u32,
    boot: String,
    #[serde(flatten)]
    counts: Counts,
}

impl Counts {
    /// Reads the counts of a boot. Returns none if nothing was counted yet. It changes nothing and takes no lock.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or of another version.
    pub fn read(state_dir: &Path, boot: &BootId) -> Result<Option<Counts>> {
        let path = state_dir.join(FILE);
        let what = || format!("read {}", path.display());
        load(&path, boot).context(what)?.context(what)
    }

    /// Adds these to the counts of a boot. A damaged file is moved aside, and counting begins anew.
    ///
    /// # Errors
    /// The state directory cannot be written to, or another process keeps the lock.
    pub(crate) fn add_to(&self, state_dir: &Path, boot: &BootId) -> Result<()> {
        let path = state_dir.join(FILE);
        let _lock = Lock::take(&state_dir.join(LOCK), LONGEST_HOLD, "counts")?;
        let found = load(&path, boot).context(|| format!("read {}", path.display()))?;
        let mut all = match found {
            Ok(counts) => counts.unwrap_or_default(),
            Err(why) => {
                let aside = state_dir.join(DAMAGED);
                let (from, to) = (path.display(), aside.display());
                effect::rename(&path, &aside).context(|| format!("move {from} aside"))?;
                let why = why.line();
                tracing::warn!("{from} is moved to {to}, and counting begins anew: {why}");
                Counts::default()
            }
        };
        all.add(self);
        let file = CountersFile {
            version: VERSION,
            boot: boot.as_str().to_owned(),
            counts: all,
        };
        let written = serde_json::to_vec(&file).map_err(io::Error::other);
        let draft = state_dir.join(DRAFT);
        let written = written.and_then(|bytes| write(&draft, &bytes));
        files::put(&draft, &path, written).context(|| format!("write {}", path.display()))
    }

    fn add(&mut self, more: &Counts) {
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
    pub(crate) fn is_empty(&self) -> bool {
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

/// Returns the counts of a boot: none without a file, or if it is of an earlier boot. The inner error says why the file is
/// damaged.
fn load(path: &Path, boot: &BootId) -> io::Result<Result<Option<Counts>>> {
    let opened = match files::open(path, Links::Refuse) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
        opened => opened?,
    };
    if let Err(e) = trust::check_metadata(&opened.meta) {
        return Ok(Err(e));
    }
    let file = match opened.read(MAX_SIZE) {
        Ok(bytes) => serde_json::from_slice::<CountersFile>(&bytes).ok(),
        Err(e) if e.kind() == ErrorKind::FileTooLarge => None,
        Err(e) => return Err(e),
    };
    Ok(match file.filter(|file| file.version == VERSION) {
        Some(file) => Ok((file.boot == boot.as_str()).then_some(file.counts)),
        None => Err(Error::new("it is damaged, or of another version")
            .hint("run migctl gc, which moves it aside")),
    })
}

fn write(draft: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW);
    let mut out = effect::open(&options, draft)?;
    effect::write_all(&mut out, bytes)
}

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
}

/// A distribution of times in the file.
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
/// NVML's codes lie below this one. Others count as its code for an unknown error, so that the file has a limit.
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

impl ResourceKind {
    /// Returns the kind of a resource.
    pub fn of(resource: &Resource) -> ResourceKind {
        match resource {
            Resource::Mig(_) => ResourceKind::Mig,
            Resource::Gpu(_) => ResourceKind::Gpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use tempfile::TempDir;

    const RELEASES: Counter = Counter::Releases(LeaseKind::Slice, Actor::Hook);

    fn home() -> (TempDir, PathBuf, BootId) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        (dir, file, "5b3c1f62-6a35-4c0e-9f3c-0f6f1a2b3c4d".into())
    }

    fn count(dir: &TempDir, boot: &BootId) -> Result<()> {
        let mut one = Counts::default();
        one.count(RELEASES);
        one.add_to(dir.path(), boot)
    }

    fn counted(dir: &TempDir, boot: &BootId) -> u64 {
        let counts = Counts::read(dir.path(), boot).unwrap();
        counts.map_or(0, |counts| counts.get(RELEASES))
    }

    #[test]
    fn counts_each_of_many_at_once() {
        let (dir, _, boot) = home();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50).for_each(|_| count(&dir, &boot).unwrap()));
            }
        });
        assert_eq!(counted(&dir, &boot), 400);
        // Beside the file lies its lock, and nothing unfinished.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn gives_up_on_stopped_holder() {
        let (dir, _, boot) = home();
        count(&dir, &boot).unwrap();
        let lock = Lock::take(&dir.path().join(LOCK), LONGEST_HOLD, "stops").unwrap();
        let begun = std::time::Instant::now();
        let line = count(&dir, &boot).unwrap_err().line();
        assert!(line.contains("(stops)"), "{line}");
        assert!(begun.elapsed() < 5 * LONGEST_HOLD);
        drop(lock);
        assert_eq!(counted(&dir, &boot), 1);
    }

    #[test]
    fn time_belongs_to_first_bound_above() {
        let (dir, _, boot) = home();
        let times = Times::Release(LeaseKind::Share);
        let mut counts = Counts::default();
        for micros in [0, 5_000, 5_001, 7_000, 301_000_000] {
            counts.observe(times, Duration::from_micros(micros));
        }
        counts.add_to(dir.path(), &boot).unwrap();
        let read = Counts::read(dir.path(), &boot).unwrap().unwrap();
        let read = read.times(times).unwrap();
        assert_eq!(read.classes[..3], [2, 2, 0]);
        assert_eq!(read.classes[BOUNDS_MS.len()], 1);
        assert_eq!(read.sum, Duration::from_micros(301_017_001));
    }

    #[test]
    fn damaged_file_moves_aside() {
        type Damage = fn(&str) -> String;
        let damages: [Damage; 6] = [
            |_| String::new(),
            |text| text[..text.len() / 2].to_owned(),
            |text| text.replace("\"version\":1", "\"version\":2"),
            // A right head with a wrong body.
            |text| {
                text.replace(
                    "\"times\":{}",
                    "\"times\":{\"release/slice\":{\"classes\":[1]}}",
                )
            },
            |text| text.replace("\"counts\":{", "\"counts\":{\"releases/slice/gc\":-1,"),
            |text| text.replace('}', &"}".repeat(1 << 20)),
        ];
        for (n, damage) in damages.iter().enumerate() {
            let (dir, file, boot) = home();
            count(&dir, &boot).unwrap();
            let damaged = damage(&fs::read_to_string(&file).unwrap());
            fs::write(&file, &damaged).unwrap();
            let line = Counts::read(dir.path(), &boot).unwrap_err().line();
            assert!(
                line.contains("it is damaged, or of another version; hint:"),
                "{n}: {line}"
            );
            count(&dir, &boot).unwrap();
            assert_eq!(counted(&dir, &boot), 1, "{n}");
            assert_eq!(
                fs::read_to_string(dir.path().join(DAMAGED)).unwrap(),
                damaged
            );
        }
    }

    #[test]
    fn file_of_others_moves_aside() {
        let (dir, file, boot) = home();
        count(&dir, &boot).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
        let line = Counts::read(dir.path(), &boot).unwrap_err().line();
        assert!(
            line.contains("users other than root can write to it"),
            "{line}"
        );
        count(&dir, &boot).unwrap();
        assert_eq!(counted(&dir, &boot), 1);
    }

    #[test]
    fn boot_begins_anew() {
        let (dir, _, boot) = home();
        count(&dir, &boot).unwrap();
        let next = "00000000-0000-4000-8000-000000000001".into();
        assert_eq!(counted(&dir, &next), 0);
        count(&dir, &next).unwrap();
        assert_eq!((counted(&dir, &next), counted(&dir, &boot)), (1, 0));
    }
}
