//! The words that every part shares: what a GPU has, and what lies on it. Plain data, no behaviour
//! that could fail. The terms are NVIDIA's (MIG User Guide).

mod closed;
mod profile_name;

pub use closed::{Closed, Cordon, Shut, Sign, SignKind};
pub use profile_name::{ProfileName, known_profiles};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{Duration, SystemTime};

/// A span of memory slices on one GPU, written `start:size` as nvidia-smi does.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Placement {
    /// The first memory slice.
    pub start: u32,
    /// The number of memory slices.
    pub size: u32,
}

impl Placement {
    pub(crate) fn overlaps(self, other: Placement) -> bool {
        self.start < other.start.saturating_add(other.size)
            && other.start < self.start.saturating_add(self.size)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.start, self.size)
    }
}

/// A GPU instance profile, as one GPU offers it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// The driver's name of the profile, such as `1g.10gb` or `1g.10gb+me`. It may be no `ProfileName`.
    pub name: String,
    /// The profile id (19, 14, 9 …), which every NVML call but one takes.
    pub id: u32,
    /// Compute slices of one instance.
    pub compute_slices: u32,
    /// Memory in MiB, as NVML reports it.
    pub memory_mib: u64,
    /// Streaming multiprocessors of one instance.
    pub multiprocessors: u32,
    /// Copy engines of one instance.
    pub copy_engines: u32,
    /// Video decoders (NVDEC) of one instance.
    pub decoders: u32,
    /// Video encoders (NVENC) of one instance.
    pub encoders: u32,
    /// JPEG engines of one instance.
    pub jpegs: u32,
    /// Optical flow accelerators of one instance.
    pub ofas: u32,
    /// Says whether an instance supports peer-to-peer access.
    pub p2p: bool,
    /// The number of instances that an empty GPU holds.
    pub max_instances: u32,
    /// Every placement that the driver allows on an empty GPU.
    pub placements: Vec<Placement>,
}

impl Profile {
    /// Returns the memory in the name, in GB: 10 for `1g.10gb+me`, which has a little less. Returns 0 where
    /// the driver's name is no `ProfileName`.
    pub fn gigabytes(&self) -> u32 {
        { self.name.parse() }.map_or(0, |name: ProfileName| name.gigabytes)
    }

    /// Returns the memory slices of one instance, or 0 for a profile without placements.
    pub fn memory_slices(&self) -> u32 {
        self.placements.first().map_or(0, |p| p.size)
    }
}

/// A compute instance of a GPU instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeInstance {
    /// The driver's id, unique in the GPU instance until the driver gives it again.
    pub id: u32,
    /// The id of the compute instance profile.
    pub profile_id: u32,
    /// Its compute slices.
    pub slices: u32,
}

/// A GPU instance and its placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInstance {
    /// The driver's id, unique on the GPU until the driver gives it again.
    pub id: u32,
    /// The id of the GPU instance profile.
    pub profile_id: u32,
    /// The memory slices of the instance.
    pub placement: Placement,
}

/// A GPU instance with its compute instances. The type differs from `GpuInstance`, so that no
/// function takes an instance without listed compute instances for an empty one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedInstance {
    /// The driver's id, unique on the GPU until the driver gives it again.
    pub id: u32,
    /// The id of the GPU instance profile.
    pub profile_id: u32,
    /// The memory slices of the instance.
    pub placement: Placement,
    /// All compute instances of the instance, in the driver's order, profile after profile.
    pub compute_instances: Vec<ComputeInstance>,
}

/// The MIG mode of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigMode {
    /// The GPU does not support MIG.
    #[default]
    Unsupported,
    /// MIG is off.
    Disabled,
    /// MIG is on.
    Enabled,
}

/// A GPU as the driver describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The driver's index, which may change with a reboot.
    pub index: u32,
    /// The number of `/dev/nvidia<minor>`.
    pub minor: u32,
    /// The UUID, such as `GPU-…`.
    pub uuid: GpuUuid,
    /// The name of the model.
    pub name: String,
    /// The PCI address, such as `00000000:07:00.0`.
    pub pci_bus_id: String,
    /// The current MIG mode.
    pub mig: MigMode,
    /// The MIG mode after the next reset, where it differs from the current one.
    pub mig_pending: Option<MigMode>,
    /// The profiles that the GPU offers. Empty if MIG is off.
    pub profiles: Vec<Profile>,
    /// The GPU instances that exist.
    pub instances: Vec<GpuInstance>,
    /// Why it gives nothing new, if it does not. The driver alone does not tell.
    #[serde(default)]
    pub closed: Option<Closed>,
}

impl Gpu {
    /// Returns the profile with this id, if the GPU offers it.
    pub fn profile(&self, id: u32) -> Option<&Profile> {
        self.profiles.iter().find(|p| p.id == id)
    }

    /// Says whether MIG is on, and the next reset switches it off.
    pub fn ends_mig(&self) -> bool {
        self.mig == MigMode::Enabled && self.mig_pending == Some(MigMode::Disabled)
    }
}

/// The driver's answers about a GPU as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuLoad {
    /// The compute mode.
    pub compute_mode: ComputeMode,
    /// The processes that compute on the GPU.
    pub processes: Vec<GpuProcess>,
    /// The processes that draw with the GPU and do not compute on it.
    pub graphics: Vec<GpuProcess>,
    /// The memory that the GPU gives out, in MiB: all but the driver's own. None where the driver does not tell, as on
    /// GPUs that share the memory of the machine.
    pub memory_mib: Option<u64>,
}

/// How near two GPUs are, the farthest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Nearness {
    /// On different NUMA nodes, or the driver does not tell.
    Apart,
    /// On one NUMA node.
    SameNode,
    /// Connected by NVLink.
    Linked,
}

/// The rule of a GPU about the processes that may compute on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One process or MPS server alone.
    ExclusiveProcess,
    /// None.
    Prohibited,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// The pid in the driver's pid namespace.
    pub pid: u32,
    /// The GPU memory of the process, in bytes, if the driver tells.
    pub used_bytes: Option<u64>,
}

/// The driver's answers at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The version of the driver, such as `570.86.10`.
    pub driver_version: String,
    /// The GPUs that answer, in the order of their indexes.
    pub gpus: Vec<Gpu>,
    /// The index of each GPU that does not answer, with the driver's error.
    pub unreadable: Vec<(u32, String)>,
}

impl Snapshot {
    /// Returns the GPU with a UUID, if it answers.
    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }
}

/// A process, told from a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// The process id in the pid namespace of the process that recorded it.
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`, in clock ticks since boot.
    pub start_time: u64,
}

/// The namespaces that give pids, start times and cgroup paths their meaning, each as the device and
/// inode number of its file. A kernel may lack the optional ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Namespaces {
    /// The pid namespace.
    pub pid: String,
    /// The time namespace, which shifts start times in `/proc/PID/stat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The cgroup namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
}

/// The cgroup of a container that does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Path components, one of which the container's cgroup will have: the last of a cgroupfs path, the
    /// scope of a systemd triple, or the names that low-level runtimes derive from the container id.
    pub names: Vec<String>,
    /// The future path in `/proc/PID/cgroup`; none if runmig cannot predict it.
    pub path: Option<String>,
}

/// A character device node for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// The absolute path, the same on the host and in the container, such as `/dev/nvidia0`.
    pub path: std::path::PathBuf,
    /// The major device number.
    pub major: u32,
    /// The minor device number.
    pub minor: u32,
    /// The permission bits.
    pub mode: u32,
}

/// The device numbers of NVIDIA's drivers on this host.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NvidiaNumbers {
    /// Every major in `/proc/devices` whose name begins with `nvidia`.
    pub majors: Vec<u32>,
    /// `(major, minor)` of the DRM nodes of NVIDIA GPUs.
    pub drm: Vec<(u32, u32)>,
}

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

/// The level at which the memory limit of a share holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The driver limits all processes of the container together.
    Driver,
    /// An MPS daemon of the container's own limits each of its processes.
    Mps,
    /// Nothing limits the container. The memory is booked.
    None,
}

impl Level {
    /// Returns the name, as the configuration writes it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Driver => "driver",
            Level::Mps => "mps",
            Level::None => "none",
        }
    }

    /// Returns the promise to a container with a share, in the words of docs/sharing.md.
    pub fn promise(self) -> &'static str {
        match self {
            Level::Driver => {
                "all processes of the container together get no more device memory than the share"
            }
            Level::Mps => {
                "each process of the container gets no more device memory than the share, unless it changes its MPS \
                 settings or bypasses MPS"
            }
            Level::None => "nothing; the memory is booked",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Types of one text each, so that none is taken for another.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Creates one from its text.
            pub fn new(text: impl Into<String>) -> Self {
                $name(text.into())
            }

            /// Returns its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )+};
}

texts! {
    /// The UUID of a GPU, as NVML writes it: `GPU-` and a UUID.
    GpuUuid;
    /// The kernel's random UUID of a boot. Neither instances nor leases survive a boot.
    BootId;
    /// The random id of a lease: 32 hexadecimal digits.
    LeaseId;
    /// The random id of an instance, by which leases name it: 32 hexadecimal digits.
    InstanceId;
    /// The random id of an operation, by which leases name it: 32 hexadecimal digits.
    OperationId;
    /// A point in time, written in RFC 3339. A record keeps its text, even if that does not parse.
    Timestamp;
}

impl Timestamp {
    /// Creates a timestamp with the precision of a second. A time before 1970 has no form, and is that of 1970.
    pub fn seconds(time: SystemTime) -> Timestamp {
        let time = time.max(SystemTime::UNIX_EPOCH);
        Timestamp(humantime::format_rfc3339_seconds(time).to_string())
    }

    /// Creates a timestamp with the precision of a millisecond.
    pub fn millis(time: SystemTime) -> Timestamp {
        let time = time.max(SystemTime::UNIX_EPOCH);
        Timestamp(humantime::format_rfc3339_millis(time).to_string())
    }

    /// Returns the time; none if the text does not parse.
    pub fn time(&self) -> Option<SystemTime> {
        humantime::parse_rfc3339(&self.0).ok()
    }

    /// Returns the time since 1970.
    pub fn since_1970(&self) -> Option<Duration> {
        self.time()?.duration_since(SystemTime::UNIX_EPOCH).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn limit_is_raised_above_the_share_or_to_none() {
        for (told_mib, is_raised) in [(0, true), (4097, true), (4096, false), (4095, false)] {
            let limit = ChangedLimit {
                told_mib,
                share_mib: 4096,
            };
            assert_eq!(limit.is_raised(), is_raised, "{limit}");
        }
    }

    #[test]
    fn keeps_the_text_of_a_record() {
        let time = UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(Timestamp::seconds(time).as_str(), "1970-01-01T00:00:01Z");
        assert_eq!(Timestamp::millis(time).as_str(), "1970-01-01T00:00:01.500Z");
        assert_eq!(Timestamp::millis(time).time(), Some(time));
        // The clock of a node whose battery is empty.
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Timestamp::seconds(before).time(), Some(UNIX_EPOCH));
        assert_eq!(
            Timestamp::millis(time).since_1970(),
            time.duration_since(UNIX_EPOCH).ok()
        );
        let odd: Timestamp = serde_json::from_str("\"soon\"").unwrap();
        assert_eq!(odd.time(), None);
        assert_eq!(serde_json::to_string(&odd).unwrap(), "\"soon\"");
    }

    #[test]
    fn changed_limits_are_shown_in_whole_units() {
        for (told_mib, gib, text) in rows! {
            0, 0 => "none";
            1023, 0 => "1023Mi";
            5000, 4 => "5000Mi";
            8192, 8 => "8Gi";
        } {
            let limit = ChangedLimit {
                told_mib,
                share_mib: 1,
            };
            assert_eq!((limit.gib(), limit.to_string().as_str()), (gib, text));
        }
    }
}
