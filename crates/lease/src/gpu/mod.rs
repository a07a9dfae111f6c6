//! The driver, in the dozen calls that a slice needs: `Queries` looks, `Mig` changes. NVML stands
//! behind them (`nvml/`, with all its unsafe code). `geometry` keeps the answers that do not change, `device_nodes`
//! reads the device numbers from `/proc`, and looks at the nodes of the host.

pub mod device_nodes;
pub mod geometry;
pub mod nvml;
pub(crate) mod reset;
pub mod uvm;

pub use geometry::DetailedGpu;
pub use nvml::{Listener, Session};

use crate::model::{
    GpuLoad, GpuUuid, ListedInstance, Nearness, Placement, Profile, Sign, Snapshot,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Reads what GPUs offer and what lies on them; changes nothing.
pub trait Queries {
    /// Reads the GPUs, and the profiles of those in MIG mode, which stay the same while a driver runs. A
    /// snapshot then asks for the rest alone. Callers prepare before they take a lock that others wait for.
    fn prepare(&self) -> Result<()>;

    /// Returns all GPUs, with what they offer and what lies on them: the places of GPU instances, whose
    /// compute instances `instances_of` lists.
    fn snapshot(&self) -> Result<Snapshot>;

    /// Returns the profiles of a GPU, also of one whose MIG mode is off: those that it would offer.
    fn offered_profiles(&self, gpu: &GpuUuid) -> Result<Vec<Profile>>;

    /// Returns how many more instances of a profile the driver says it would make now.
    fn free_instances(&self, gpu: &GpuUuid, profile: u32) -> Result<u32>;

    /// Returns the instances of one profile on a GPU; none where its MIG mode is off. An instance that
    /// is not listed is gone, so an answer that leaves doubt is an error.
    fn instances_of(&self, gpu: &GpuUuid, profile: u32) -> Result<Vec<ListedInstance>>;

    /// Returns the use of a GPU as a whole. It fails if the driver does not tell all of it, because a GPU
    /// counts as free only by the driver's answer.
    fn load(&self, gpu: &GpuUuid) -> Result<GpuLoad>;

    /// Returns the processes that compute on a GPU and are no MPS clients: MPS servers, and processes that bypass MPS.
    fn outside_mps(&self, gpu: &GpuUuid) -> Result<Vec<u32>>;

    /// Returns the signs that a GPU is sick, the gravest first: all but that of its fabric in one call of the driver, and
    /// that one in another. A sign that the driver does not support is left out.
    fn signs(&self, gpu: &GpuUuid, fabric: bool) -> Result<Vec<Sign>>;

    /// Returns the CUDA compute capability of a GPU, as major and minor number.
    fn compute_capability(&self, gpu: &GpuUuid) -> Result<(u32, u32)>;

    /// Returns how near another GPU is.
    fn nearness(&self, gpu: &GpuUuid, other: GpuUuid) -> Result<Nearness>;

    /// Returns the memory limits of the cgroup in a directory. `FUNCTION_NOT_FOUND` says that the driver has no such
    /// limits, `NOT_SUPPORTED` or `NOT_FOUND` that this cgroup has none.
    fn memory_limits(&self, gpu: &GpuUuid, cgroup: PathBuf) -> Result<MemoryLimits>;

    /// Returns the UUID of the MIG device that a GPU instance and its compute instance make up.
    fn mig_uuid(&self, gpu: &GpuUuid, gi: u32, ci: u32) -> Result<String>;

    /// Tells whether a compute instance of this profile fills its GPU instance, as ours do.
    fn is_filled_by(&self, gpu: &GpuUuid, gi: u32, ci_profile: u32) -> Result<bool>;

    /// Returns the memory in use, in bytes: of the MIG device that two instances make up, or of the whole GPU.
    fn used_memory(&self, gpu: &GpuUuid, mig: Option<(u32, u32)>) -> Result<u64>;

    /// Returns the processes that compute on a MIG device, as far as the driver tells.
    fn processes(&self, gpu: &GpuUuid, gi: u32, ci: u32) -> Result<Vec<u32>>;
}

/// The memory limits of a cgroup on a GPU, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimits {
    /// The part that the driver protects. runmig leaves it 0, because the driver adds it to the cgroups above, where
    /// it outlives the cgroup.
    pub soft: u64,
    /// The most that all processes of the cgroup get together.
    pub hard: u64,
}

/// The effect of a change of the MIG mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModeChange {
    /// The mode is in force.
    Done,
    /// The next reset of the GPU puts it in force.
    AfterReset,
}

/// Creates and destroys the instances of MIG, and switches MIG on and off.
pub(crate) trait Mig: Queries {
    /// Switches MIG on or off on a GPU without instances, clients and displays.
    fn set_mig_mode(&self, gpu: &GpuUuid, on: bool) -> Result<ModeChange>;

    /// Creates a GPU instance and returns its id. `INSUFFICIENT_RESOURCES` means that nothing was made.
    fn create_gpu_instance(&self, gpu: &GpuUuid, profile: &Profile, at: Placement) -> Result<u32>;

    /// Creates the compute instance that fills the GPU instance, and returns its id.
    fn create_compute_instance(&self, gpu: &GpuUuid, gpu_instance: u32) -> Result<u32>;

    /// Creates a compute instance that may leave room for others, and returns its id.
    fn create_part(&self, gpu: &GpuUuid, gpu_instance: u32, slices: u32) -> Result<u32>;

    /// Destroys a compute instance. A missing instance is no error.
    fn destroy_compute_instance(&self, gpu: &GpuUuid, gi: u32, ci: u32) -> Result<()>;

    /// Destroys a GPU instance. A missing instance is no error.
    fn destroy_gpu_instance(&self, gpu: &GpuUuid, gi: u32) -> Result<()>;
}

/// The result of a call of the driver.
pub type Result<T> = std::result::Result<T, DriverError>;

/// A failed call of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverError {
    /// The operation and its object.
    pub what: String,
    /// The driver's reason.
    pub reason: Reason,
}

/// Why a call of the driver failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// NVML's return code.
    Code(u32),
    /// The library is missing, or lacks a function.
    Library(String),
    /// The library's answer is unusable.
    Answer(String),
    /// The library does not answer in time, or ends the process that calls it.
    Silent(String),
}

pub(crate) const INVALID_ARGUMENT: u32 = 2;
pub(crate) const NOT_SUPPORTED: u32 = 3;
pub(crate) const NO_PERMISSION: u32 = 4;
pub(crate) const NOT_FOUND: u32 = 6;
pub(crate) const INSUFFICIENT_SIZE: u32 = 7;
pub(crate) const DRIVER_NOT_LOADED: u32 = 9;
pub(crate) const FUNCTION_NOT_FOUND: u32 = 13;
pub(crate) const GPU_IS_LOST: u32 = 15;
pub(crate) const RESET_REQUIRED: u32 = 16;
pub(crate) const IN_USE: u32 = 19;
pub(crate) const INSUFFICIENT_RESOURCES: u32 = 23;

impl DriverError {
    /// Returns an error of an operation, which `cannot` precedes.
    pub fn new(what: String, reason: Reason) -> DriverError {
        DriverError { what, reason }
    }

    /// Returns NVML's return code, if the driver gave one.
    pub fn code(&self) -> Option<u32> {
        match self.reason {
            Reason::Code(code) => Some(code),
            Reason::Library(_) | Reason::Answer(_) | Reason::Silent(_) => None,
        }
    }

    /// Marks an error of a later call about a created object, so that no caller takes its code for the create's
    /// own answer.
    pub(crate) fn about_what_was_made(self) -> DriverError {
        DriverError {
            reason: match self.reason {
                Reason::Code(code) => Reason::Answer(format!(
                    "made, but not readable: {} (NVML {code})",
                    words(code)
                )),
                other => other,
            },
            ..self
        }
    }

    /// Something uses the instance, which passes; not a fault of ours or the driver's.
    pub(crate) fn is_in_use(&self) -> bool {
        self.code() == Some(IN_USE)
    }

    /// Returns whether the driver has no such object.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(NOT_FOUND)
    }

    /// Returns whether the GPU, or its driver, does not support the call.
    pub fn is_not_supported(&self) -> bool {
        self.code() == Some(NOT_SUPPORTED)
    }

    /// Returns the operator's next step, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match &self.reason {
            Reason::Library(_) => {
                Some("install the NVIDIA driver, or set driver.library to its libnvidia-ml.so.1")
            }
            Reason::Code(DRIVER_NOT_LOADED) => {
                Some("load the NVIDIA kernel module (modprobe nvidia), or reboot after an update")
            }
            Reason::Code(NO_PERMISSION) => Some("run as root, outside of any user namespace"),
            Reason::Code(GPU_IS_LOST) => Some("reset the GPU, or reboot: it fell off the bus"),
            Reason::Code(IN_USE) => Some(
                "run nvidia-smi to see what holds the GPU; a monitoring agent (DCGM) counts as well",
            ),
            Reason::Code(INSUFFICIENT_RESOURCES) => Some(
                "run nvidia-smi mig -lgi, then -lci, to see which instances are there, and try again",
            ),
            Reason::Silent(_) => {
                Some("run dmesg to see what the driver says; if it is only slow, raise --timeout")
            }
            Reason::Code(_) | Reason::Answer(_) => None,
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Code(code) => {
                write!(f, "cannot {}: {} (NVML {code})", self.what, words(*code))
            }
            Reason::Library(why) | Reason::Answer(why) | Reason::Silent(why) => {
                write!(f, "cannot {}: {why}", self.what)
            }
        }
    }
}

impl std::error::Error for DriverError {}

impl From<DriverError> for crate::error::Error {
    fn from(e: DriverError) -> Self {
        let mut error = crate::error::Error::new(e.to_string()).of_driver();
        if e.is_in_use() {
            error = error.passing();
        }
        match e.hint() {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// Returns the words of `nvmlErrorString`, in our case; kept here because a failed start leaves no
/// library to ask.
fn words(code: u32) -> &'static str {
    match code {
        1 => "uninitialized",
        2 => "invalid argument",
        3 => "not supported",
        4 => "insufficient permissions",
        5 => "already initialized",
        6 => "not found",
        7 => "insufficient size",
        8 => "insufficient external power",
        9 => "driver not loaded",
        10 => "timeout",
        11 => "interrupt request issue",
        12 => "NVML shared library couldn't be found or loaded",
        13 => "function not found",
        14 => "corrupted infoROM",
        15 => "GPU is lost",
        16 => "GPU requires reset",
        17 => "GPU access blocked by the operating system",
        18 => "driver/library version mismatch",
        19 => "in use by another client",
        20 => "insufficient memory",
        21 => "no data",
        22 => "requested vGPU operation not available with ECC enabled",
        23 => "insufficient resources",
        24 => "frequency not supported",
        25 => "argument version mismatch",
        26 => "deprecated function",
        27 => "system is not in ready state",
        28 => "no GPUs found",
        29 => "invalid state",
        30 => "reset type not supported",
        _ => "unknown error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_install_for_missing_library_alone() {
        let hint = |reason| {
            let what = "create a GPU instance".to_owned();
            DriverError { what, reason }.hint()
        };
        let missing = hint(Reason::Library("no such file".to_owned()));
        assert!(missing.is_some_and(|hint| hint.contains("install the NVIDIA driver")));
        assert_eq!(hint(Reason::Answer("no profile".to_owned())), None);
        let made = DriverError {
            what: String::new(),
            reason: Reason::Code(NOT_FOUND),
        };
        assert_eq!(made.about_what_was_made().hint(), None);
    }

    #[test]
    fn codes_have_nvmls_words() {
        let all = nvml_sim::engine::Code::ALL.iter().map(|(_, code)| code);
        let unlike = all.filter(|code| !code.words().eq_ignore_ascii_case(words(code.0)));
        let ours: Vec<(u32, &str)> = unlike.map(|code| (code.0, words(code.0))).collect();
        assert_eq!(
            ours,
            [
                (12, "NVML shared library couldn't be found or loaded"),
                (18, "driver/library version mismatch"),
                (
                    22,
                    "requested vGPU operation not available with ECC enabled"
                ),
                (26, "deprecated function"),
                (28, "no GPUs found"),
            ]
        );
    }

    #[test]
    fn tells_answers_apart_by_code() {
        let other = Reason::Answer(String::new());
        for (reason, is_not_found, is_not_supported) in [
            (Reason::Code(NOT_FOUND), true, false),
            (Reason::Code(NOT_SUPPORTED), false, true),
            (Reason::Code(IN_USE), false, false),
            (other, false, false),
        ] {
            let e = DriverError::new(String::new(), reason);
            let told = (e.is_not_found(), e.is_not_supported());
            assert_eq!(told, (is_not_found, is_not_supported), "{e}");
        }
    }
}
