//! The hardware of an instance, as its record has it.

use crate::counters::ResourceKind;
use crate::model::{Gpu, GpuUuid, Placement, Profile};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kind of hardware. A new kind is a new arm, and the compiler lists the places that need to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resource {
    /// A MIG slice.
    Mig(Slice),
    /// A GPU outside of MIG mode.
    Gpu(WholeGpu),
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

impl Resource {
    /// Returns the UUID of the GPU on which the resource lies.
    pub fn gpu_uuid(&self) -> &GpuUuid {
        match self {
            Resource::Mig(slice) => &slice.gpu_uuid,
            Resource::Gpu(gpu) => &gpu.gpu_uuid,
        }
    }

    /// Returns the driver's index of the GPU, as it was at the create.
    pub fn gpu_index(&self) -> u32 {
        match self {
            Resource::Mig(slice) => slice.gpu_index,
            Resource::Gpu(gpu) => gpu.gpu_index,
        }
    }

    /// Returns the number of `/dev/nvidia<minor>`.
    pub fn gpu_minor(&self) -> u32 {
        match self {
            Resource::Mig(slice) => slice.gpu_minor,
            Resource::Gpu(gpu) => gpu.gpu_minor,
        }
    }

    /// Returns the memory that the resource gives out, in MiB.
    pub fn memory_mib(&self) -> u64 {
        match self {
            Resource::Mig(slice) => slice.memory_mib,
            Resource::Gpu(gpu) => gpu.memory_mib,
        }
    }

    /// Returns the UUID by which CUDA names the device: of the GPU, or of the MIG device once it exists.
    pub fn device(&self) -> Option<&str> {
        match self {
            Resource::Mig(slice) => slice.mig_uuid.as_deref(),
            Resource::Gpu(gpu) => Some(gpu.gpu_uuid.as_str()),
        }
    }
}

/// Names the resource for people: `1g.10gb at 4:1 on GPU 0`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Mig(slice) => slice.fmt(f),
            Resource::Gpu(gpu) => write!(f, "GPU {}", gpu.gpu_index),
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
    /// The memory that the slice gives out, in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// The id of the GPU instance, once it exists.
    #[serde(rename = "gpuInstanceID")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// The id of the compute instance, once it exists.
    #[serde(rename = "computeInstanceID")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
    /// The UUID of the MIG device, once it exists.
    #[serde(rename = "migUUID", default, skip_serializing_if = "Option::is_none")]
    pub mig_uuid: Option<String>,
    /// Says whether the compute instance is destroyed and the GPU instance is next. A compute instance
    /// there now belongs to another program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emptied: bool,
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
    /// The memory that the GPU gives out, in MiB; 0 where the driver does not tell.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
}

impl WholeGpu {
    /// Returns the memory that the GPU gives out, in MiB, if the driver tells.
    pub fn known_mib(&self) -> Option<u64> {
        Some(self.memory_mib).filter(|mib| *mib > 0)
    }

    /// Returns the record of a GPU that gives out so much memory, in MiB.
    pub(crate) fn of(gpu: &Gpu, memory_mib: u64) -> WholeGpu {
        WholeGpu {
            gpu_uuid: gpu.uuid.clone(),
            gpu_index: gpu.index,
            gpu_minor: gpu.minor,
            model: gpu.name.clone(),
            memory_mib,
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
            memory_mib: profile.memory_mib,
            gpu_instance: None,
            compute_instance: None,
            mig_uuid: None,
            emptied: false,
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

/// The memory slices of the largest GPU, for what takes all of its GPU.
pub(crate) const WHOLE_GPU: Placement = Placement { start: 0, size: 8 };
