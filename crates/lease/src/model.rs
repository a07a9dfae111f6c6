//! The words that every part shares: what a GPU has, and what lies on it. Plain data, no behaviour
//! that could fail. The terms are NVIDIA's (MIG User Guide).

mod profile_name;

pub use profile_name::{NotAProfileName, ProfileName};

use serde::{Deserialize, Serialize};
use std::fmt;

/// A span of memory slices on one GPU, written `start:size` as nvidia-smi does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Placement {
    pub start: u32,
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
    /// `1g.10gb`, `1g.10gb+me`; as the driver calls it, so it may be no `ProfileName`.
    pub name: String,
    /// The profile id (19, 14, 9 …): what every NVML call but one takes.
    pub id: u32,
    pub compute_slices: u32,
    /// Memory in MiB, as NVML reports it.
    pub memory_mib: u64,
    pub multiprocessors: u32,
    pub copy_engines: u32,
    pub decoders: u32,
    pub encoders: u32,
    pub jpegs: u32,
    pub ofas: u32,
    pub p2p: bool,
    /// How many of it an empty GPU holds.
    pub max_instances: u32,
    /// The places that the driver ever allows.
    pub placements: Vec<Placement>,
}

impl Profile {
    /// Memory as its name says: `1g.10gb+me` gives 10, though it has a little less. 0 where the driver
    /// calls it otherwise.
    pub fn gigabytes(&self) -> u32 {
        { self.name.parse() }.map_or(0, |name: ProfileName| name.gigabytes)
    }

    /// Memory slices that one instance takes.
    pub fn memory_slices(&self) -> u32 {
        self.placements.first().map_or(0, |p| p.size)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeInstance {
    pub id: u32,
    pub profile_id: u32,
}

/// A GPU instance and the place it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInstance {
    pub id: u32,
    pub profile_id: u32,
    pub placement: Placement,
}

/// A GPU instance with its contents. A type of its own, so that nobody takes an instance whose compute
/// instances were not listed for an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedInstance {
    pub id: u32,
    pub profile_id: u32,
    pub placement: Placement,
    pub compute_instances: Vec<ComputeInstance>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigMode {
    /// The GPU has no MIG.
    Unsupported,
    Disabled,
    Enabled,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    pub index: u32,
    /// The number of `/dev/nvidia<minor>`.
    pub minor: u32,
    pub uuid: String,
    pub name: String,
    pub pci_bus_id: String,
    pub mig: MigMode,
    /// The mode after the next reset, where it differs.
    pub mig_pending: Option<MigMode>,
    /// The profiles that it offers; empty if MIG is off.
    pub profiles: Vec<Profile>,
    pub instances: Vec<GpuInstance>,
}

impl Gpu {
    pub fn profile(&self, id: u32) -> Option<&Profile> {
        self.profiles.iter().find(|p| p.id == id)
    }
}

/// The driver's answers at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Snapshot {
    pub driver_version: String,
    pub gpus: Vec<Gpu>,
    /// GPUs that the driver counts but would not speak of, and why.
    pub unreadable: Vec<(u32, String)>,
}

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`, in clock ticks since boot.
    pub start_time: u64,
}

/// The namespaces that give pids, start times and cgroup paths their meaning, each as the device and
/// inode number of its file. A kernel may be without those that are optional here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Namespaces {
    pub pid: String,
    /// Start times in `/proc/PID/stat` are shifted by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
}

/// The cgroup of a container that is not there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Path components, one of which the container's cgroup will have: the last of a cgroupfs path,
    /// the scope of a systemd triple, or the names that low-level runtimes make of the id when nothing is
    /// said.
    pub names: Vec<String>,
    /// The path as `/proc/PID/cgroup` will have it; none where it cannot be told beforehand.
    pub path: Option<String>,
}

/// A character device node to be made in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// Absolute, the same on the host and in the container: `/dev/nvidia0`.
    pub path: std::path::PathBuf,
    pub major: u32,
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
}

/// Which device numbers are NVIDIA's on this host.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NvidiaNumbers {
    /// Every major that `/proc/devices` gives to a name that begins with `nvidia`.
    pub majors: Vec<u32>,
    /// `(major, minor)` of DRM nodes whose GPU is NVIDIA's.
    pub drm: Vec<(u32, u32)>,
}
