//! The state of a machine and the look-ups in it.

use serde::{Deserialize, Serialize};

use super::code::Code;
use super::geometry::{GiProfile, Model};
use super::health::Health;
use super::identity::{mig_uuid, uuid_from};
use super::memory_limits::{LimitBackend, MemoryLimit};
use super::mig_mode::Mode;
use super::placement::Placement;

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// All UUIDs come from it.
    pub seed: String,
    /// How often it was booted.
    pub boots: u64,
    pub driver: Driver,
    /// Whether the nvidia-modeset module is loaded: not on a server without a display.
    #[serde(default)]
    pub modeset: bool,
    /// Whether `nvidia-smi` cannot reset its GPUs, as in many virtual machines.
    #[serde(default)]
    pub no_reset: bool,
    /// The generation of the next instance. No two instances have the same.
    pub next_generation: u64,
    pub gpus: Vec<Gpu>,
    /// Processes that said that they hold something. Whether they do is for others to find out.
    #[serde(default)]
    pub holders: Vec<Holder>,
    #[serde(default)]
    pub limit_backend: LimitBackend,
    /// Limits by cgroup. Those of cgroups that are gone do no harm.
    #[serde(default)]
    pub memory_limits: Vec<MemoryLimit>,
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Driver {
    pub version: String,
    /// As `nvmlSystemGetCudaDriverVersion` has it: 13000 is 13.0.
    pub cuda: u32,
}

impl Default for Driver {
    fn default() -> Driver {
        Driver {
            version: "580.95.05".into(),
            cuda: 13000,
        }
    }
}

impl Driver {
    /// Returns the driver of a release branch, such as 580, if it can be simulated.
    pub fn of_branch(branch: u32) -> Option<Driver> {
        let (version, cuda) = match branch {
            550 => ("550.163.01", 12040),
            580 => return Some(Driver::default()),
            615 => ("615.71.01", 13040),
            _ => return None,
        };
        let version = version.into();
        Some(Driver { version, cuda })
    }

    /// Returns the release branch, the number before the first dot of the version.
    pub fn branch(&self) -> u32 {
        let first = self.version.split('.').next();
        first.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Gpu {
    pub model: String,
    pub uuid: String,
    pub minor: u32,
    pub pci_bus: u32,
    pub serial: String,
    pub floor_swept: bool,
    pub mode: Mode,
    pub pending: Mode,
    /// It has fallen off the bus.
    pub lost: bool,
    #[serde(default)]
    pub compute_mode: ComputeMode,
    #[serde(default)]
    pub numa_node: u32,
    /// GPUs with the same number are connected by NVLink.
    #[serde(default)]
    pub nvlink: Option<u32>,
    /// Compute instance profile 8, if its driver lists it.
    #[serde(default)]
    pub nvl: Option<NvlProfile>,
    #[serde(default)]
    pub health: Health,
    pub gpu_instances: Vec<GpuInstance>,
}

/// What a driver that lists compute instance profile 8 makes of it (`NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE_NVL`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NvlProfile {
    Made,
    /// As on an A100 (kubernetes-sigs/dra-driver-nvidia-gpu issue 1480).
    Refused,
    /// It says that no instance of it fits.
    Empty,
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct GpuInstance {
    pub id: u32,
    pub profile_id: u32,
    pub placement: Placement,
    pub generation: u64,
    pub compute_instances: Vec<ComputeInstance>,
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct ComputeInstance {
    pub id: u32,
    pub profile_id: u32,
    pub placement: Placement,
    pub generation: u64,
}

/// A GPU, a GPU instance or a compute instance, as something to hold. `gpu` is the index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct Target {
    pub gpu: u32,
    pub gi: Option<u32>,
    pub ci: Option<u32>,
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Holder {
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: with the pid it names one process for the whole boot.
    pub start_time: u64,
    pub target: Target,
    /// Bytes of GPU memory, with those of its context.
    #[serde(default = "context_bytes")]
    pub memory: u64,
    /// Those of the bytes that are managed memory.
    #[serde(default)]
    pub managed: u64,
    /// The inodes of its cgroup and of those above, when its memory last changed.
    #[serde(default)]
    pub cgroups: Vec<u64>,
    #[serde(default)]
    pub kind: HolderKind,
}

/// The part that a process has in CUDA's Multi-Process Service (MPS).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderKind {
    /// It uses CUDA without MPS.
    #[default]
    Plain,
    /// It computes through an MPS server.
    MpsClient,
    /// It is an MPS server.
    MpsServer,
}

/// Returns the memory of a context without any allocation of its own.
pub fn context_bytes() -> u64 {
    256 << 20
}

impl Target {
    /// Returns a whole GPU.
    pub fn of_gpu(gpu: u32) -> Target {
        Target::new(gpu, None, None)
    }

    pub fn new(gpu: u32, gi: Option<u32>, ci: Option<u32>) -> Target {
        Target { gpu, gi, ci }
    }

    /// Returns whether another target is this one or a part of it.
    pub fn contains(self, other: Target) -> bool {
        let is_all = |mine: Option<u32>, its| mine.is_none() || mine == its;
        self.gpu == other.gpu && is_all(self.gi, other.gi) && is_all(self.ci, other.ci)
    }
}

/// The processes that may compute on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    #[default]
    Default,
    ExclusiveProcess,
    Prohibited,
}

impl ComputeMode {
    /// `NVML_COMPUTEMODE_*`.
    pub fn number(self) -> u32 {
        match self {
            ComputeMode::Default => 0,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        }
    }
}

/// A GPU of a machine to be made.
pub struct NewGpu {
    pub model: &'static Model,
    pub floor_swept: bool,
    pub mode: Mode,
}

/// A compute instance in its GPU instance: what CUDA sees as a device.
#[derive(Clone, Copy, Debug)]
pub struct MigDevice<'a> {
    pub gpu: &'a Gpu,
    pub gi: &'a GpuInstance,
    pub ci: &'a ComputeInstance,
}

impl Machine {
    pub fn new(seed: &str, gpus: &[NewGpu]) -> Machine {
        let gpus = gpus.iter().enumerate().map(|(index, new)| {
            let uuid = uuid_from(&format!("{seed}/gpu/{index}"));
            let serial = u64::from_str_radix(&uuid[24..], 16).unwrap_or(0) % 10_u64.pow(10);
            Gpu {
                model: new.model.key.clone(),
                uuid: format!("GPU-{uuid}"),
                minor: index as u32,
                pci_bus: 7 + index as u32 * 8 % 248 + index as u32 / 31,
                serial: format!("165{serial:010}"),
                floor_swept: new.floor_swept,
                mode: new.mode,
                pending: new.mode,
                lost: false,
                compute_mode: ComputeMode::Default,
                numa_node: 0,
                nvlink: None,
                nvl: None,
                health: Health::default(),
                gpu_instances: Vec::new(),
            }
        });
        Machine {
            seed: seed.into(),
            boots: 1,
            driver: Driver::default(),
            modeset: false,
            no_reset: false,
            next_generation: 1,
            gpus: gpus.collect(),
            holders: Vec::new(),
            limit_backend: LimitBackend::default(),
            memory_limits: Vec::new(),
        }
    }

    /// Whether its module nvidia-uvm is loaded as soon as it has booted.
    pub fn has_uvm(&self) -> bool {
        self.boots == 1
    }

    pub fn boot_id(&self) -> String {
        uuid_from(&format!("{}/boot/{}", self.seed, self.boots))
    }

    /// A GPU that answers.
    pub fn gpu(&self, index: u32) -> Result<&Gpu, Code> {
        match self.gpus.get(index as usize) {
            Some(gpu) if gpu.lost => Err(Code::GPU_IS_LOST),
            found => found.ok_or(Code::INVALID_ARGUMENT),
        }
    }

    pub fn gpu_mut(&mut self, index: u32) -> Result<&mut Gpu, Code> {
        self.gpu(index)?;
        Ok(&mut self.gpus[index as usize])
    }

    pub(super) fn generation(&mut self) -> u64 {
        self.next_generation += 1;
        self.next_generation - 1
    }
}

impl Gpu {
    pub fn model(&self) -> &'static Model {
        let known = Model::all().iter().find(|m| m.key == self.model);
        known.expect("a state file names a model that this version has")
    }

    pub fn profile_of(&self, gi: &GpuInstance) -> &'static GiProfile {
        let profile = self.model().profile(gi.profile_id);
        profile.expect("instances have a profile of their model")
    }

    /// `domain:bus:device.function` with four digits of domain, as the kernel writes it.
    pub fn pci_address(&self) -> String {
        format!("0000:{:02x}:00.0", self.pci_bus)
    }

    /// Returns the GPU if its model has MIG, whatever the mode.
    pub fn of_mig_model(&self) -> Result<&Gpu, Code> {
        let has_mig = self.model().has_mig();
        has_mig.then_some(self).ok_or(Code::NOT_SUPPORTED)
    }

    /// Returns the GPU if MIG is on, as calls about instances demand.
    pub fn with_mig(&self) -> Result<&Gpu, Code> {
        let is_on = self.mode == Mode::On;
        is_on.then_some(self).ok_or(Code::NOT_SUPPORTED)
    }

    pub fn gpu_instance(&self, id: u32) -> Result<&GpuInstance, Code> {
        let mut all = self.gpu_instances.iter();
        all.find(|gi| gi.id == id).ok_or(Code::NOT_FOUND)
    }

    pub fn gpu_instance_mut(&mut self, id: u32) -> Result<&mut GpuInstance, Code> {
        let mut all = self.gpu_instances.iter_mut();
        all.find(|gi| gi.id == id).ok_or(Code::NOT_FOUND)
    }

    /// The most MIG devices it can have: 0 with MIG off.
    pub fn max_mig_devices(&self) -> u32 {
        match self.mode {
            Mode::On => self.model().compute_slices,
            Mode::Off => 0,
        }
    }

    /// The MIG devices in the order of their indices.
    pub fn mig_devices(&self) -> Vec<MigDevice<'_>> {
        let mut all: Vec<_> = self
            .gpu_instances
            .iter()
            .flat_map(|gi| {
                gi.compute_instances
                    .iter()
                    .map(move |ci| MigDevice { gpu: self, gi, ci })
            })
            .collect();
        all.sort_by_key(|d| (d.gi.id, d.ci.id));
        all
    }
}

impl GpuInstance {
    pub fn compute_instance(&self, id: u32) -> Result<&ComputeInstance, Code> {
        let mut all = self.compute_instances.iter();
        all.find(|ci| ci.id == id).ok_or(Code::NOT_FOUND)
    }
}

impl MigDevice<'_> {
    pub fn uuid(&self) -> String {
        mig_uuid(&self.gpu.uuid, self.gi.id, self.ci.id)
    }

    /// `1g.10gb`, or `1c.2g.20gb` where it does not fill its GPU instance.
    pub fn profile_name(&self) -> String {
        let gi = self.gpu.profile_of(self.gi);
        match self.gpu.model().ci_profile(gi, self.ci.profile_id) {
            Some(ci) => ci.name,
            None => gi.name.clone(),
        }
    }
}
