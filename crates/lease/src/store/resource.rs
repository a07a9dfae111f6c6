//! The hardware of an instance, as its record has it.

use super::names::Place;
use crate::model::{Gpu, GpuUuid, Level, Placement, Process, Profile};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kind of hardware. A new kind is a new arm, and the compiler lists the places that need to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resource {
    /// A MIG slice.
    Mig(Slice),
    /// A GPU outside of MIG mode, for one holder or for shares.
    Gpu(WholeGpu),
    /// An MPS daemon on such a GPU, for one share, or on a slice, for one seat.
    Mps(MpsDaemon),
}

impl Resource {
    /// Returns the UUID of the GPU on which the resource lies.
    pub fn gpu_uuid(&self) -> &GpuUuid {
        match self {
            Resource::Mig(slice) => &slice.gpu_uuid,
            Resource::Gpu(gpu) => &gpu.gpu_uuid,
            Resource::Mps(daemon) => &daemon.gpu.gpu_uuid,
        }
    }

    /// Returns the driver's index of the GPU, as it was at the create.
    pub fn gpu_index(&self) -> u32 {
        match self {
            Resource::Mig(slice) => slice.gpu_index,
            Resource::Gpu(gpu) => gpu.gpu_index,
            Resource::Mps(daemon) => daemon.gpu.gpu_index,
        }
    }

    /// Returns the GPU outside of MIG mode, if the resource is one or is on one.
    pub fn gpu(&self) -> Option<&WholeGpu> {
        match self {
            Resource::Gpu(gpu) => Some(gpu),
            Resource::Mps(daemon) => Some(&daemon.gpu),
            Resource::Mig(_) => None,
        }
    }

    /// Returns the MPS daemon, if the resource is one.
    pub fn daemon(&self) -> Option<&MpsDaemon> {
        match self {
            Resource::Mps(daemon) => Some(daemon),
            Resource::Mig(_) | Resource::Gpu(_) => None,
        }
    }

    /// Returns the MIG slice that the resource is, or on which its daemon lies.
    pub fn mig_slice(&self) -> Option<&Slice> {
        match self {
            Resource::Mig(slice) => Some(slice),
            Resource::Mps(daemon) => daemon.slice.as_ref(),
            Resource::Gpu(_) => None,
        }
    }
}

/// Names the resource for people: `1g.10gb at 4:1 on GPU 0`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Mig(slice) => slice.fmt(f),
            Resource::Gpu(gpu) => write!(f, "GPU {}", gpu.gpu_index),
            Resource::Mps(MpsDaemon {
                slice: Some(slice), ..
            }) => write!(f, "MPS daemon on {slice}"),
            Resource::Mps(daemon) => write!(f, "MPS daemon on GPU {}", daemon.gpu.gpu_index),
        }
    }
}

/// A slice: a GPU instance with the one compute instance that fills it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slice {
    /// The name of the profile.
    pub profile: String,
    /// The id of the profile.
    #[serde(rename = "profileID")]
    pub profile_id: u32,
    /// The UUID of the GPU.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: GpuUuid,
    /// The driver's index of the GPU.
    pub gpu_index: u32,
    /// The number of `/dev/nvidia<minor>`.
    pub gpu_minor: u32,
    /// The memory slices of the slice.
    pub placement: Placement,
    /// The id of the GPU instance, once it exists.
    #[serde(
        rename = "gpuInstanceID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub gpu_instance: Option<u32>,
    /// The id of the compute instance, once it exists.
    #[serde(
        rename = "computeInstanceID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub compute_instance: Option<u32>,
    /// The UUID of the MIG device, once it exists.
    #[serde(rename = "migUUID", default, skip_serializing_if = "Option::is_none")]
    pub mig_uuid: Option<String>,
    /// Says whether the compute instance is destroyed and the GPU instance is next. A compute instance
    /// there now belongs to another program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emptied: bool,
    /// The terms of its seats. None for a slice that containers have whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seats: Option<Seats>,
}

/// The terms of the seats of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seats {
    /// The level of all seats.
    pub level: Level,
    /// The memory that the slice gives out, in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
}

/// A GPU that is not in MIG mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WholeGpu {
    /// The UUID of the GPU.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: GpuUuid,
    /// The driver's index of the GPU.
    pub gpu_index: u32,
    /// The number of `/dev/nvidia<minor>`.
    pub gpu_minor: u32,
    /// The name of the model.
    pub model: String,
    /// The memory that the GPU gives out, in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// The level of all shares of the GPU. None if one holder has the whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
}

/// An MPS daemon, which limits the memory of each of its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpsDaemon {
    /// The GPU; for a seat with the memory of its slice.
    pub gpu: WholeGpu,
    /// The slice of a seat, a copy of the parent's; without ids until the parent is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<Slice>,
    /// The memory limit of each client, in MiB.
    #[serde(rename = "limitMiB")]
    pub limit_mib: u64,
    /// The memory that the daemon books on the GPU, in MiB: the limit and what its server needs.
    #[serde(rename = "bookedMiB")]
    pub booked_mib: u64,
    /// The process of the daemon, on record before it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// The number of restarts: a collector restarts the daemon once.
    #[serde(default)]
    pub restarts: u32,
}

impl MpsDaemon {
    /// Returns the UUID of the device that its server uses: a GPU, or a MIG device. None if the slice has no UUID yet.
    pub(crate) fn device(&self) -> Option<&str> {
        match &self.slice {
            Some(slice) => slice.mig_uuid.as_deref(),
            None => Some(self.gpu.gpu_uuid.as_str()),
        }
    }
}

impl WholeGpu {
    /// Returns the record of a GPU that gives out so much memory, in MiB: for one holder, or for shares at a level.
    pub(crate) fn of(gpu: &Gpu, memory_mib: u64, level: Option<Level>) -> WholeGpu {
        WholeGpu {
            gpu_uuid: gpu.uuid.clone(),
            gpu_index: gpu.index,
            gpu_minor: gpu.minor,
            model: gpu.name.clone(),
            memory_mib,
            level,
        }
    }

    /// Returns the record of a GPU of which only the name of a record tells.
    pub(crate) fn lost(place: &Place, level: Option<Level>) -> WholeGpu {
        WholeGpu {
            gpu_uuid: place.gpu_uuid.clone(),
            gpu_index: 0,
            gpu_minor: 0,
            model: String::new(),
            memory_mib: 0,
            level,
        }
    }
}

impl Slice {
    /// Returns a slice that is to be made at a place.
    pub(crate) fn planned(gpu: &Gpu, profile: &Profile, placement: Placement) -> Slice {
        Slice {
            profile: profile.name.clone(),
            profile_id: profile.id,
            gpu_uuid: gpu.uuid.clone(),
            gpu_index: gpu.index,
            gpu_minor: gpu.minor,
            placement,
            gpu_instance: None,
            compute_instance: None,
            mig_uuid: None,
            emptied: false,
            seats: None,
        }
    }
}

/// Formats a slice as `1g.10gb at 4:1 on GPU 0`.
impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (profile, placement, gpu) = (&self.profile, self.placement, self.gpu_index);
        write!(f, "{profile} at {placement} on GPU {gpu}")
    }
}
