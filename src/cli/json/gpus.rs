//! `migctl gpus`: a `GpuList`.

use runmig_lease::model::{Gpu, GpuInstance, Placement};
use serde::Serialize;

/// A GPU with its MIG mode, its profiles and what lies on it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuItem<'a> {
    /// The index in NVML, counted from 0.
    pub index: u32,
    /// The minor number of `/dev/nvidiaN`.
    pub minor: u32,
    /// The UUID: `GPU-…`.
    pub uuid: &'a str,
    /// The product name.
    pub name: &'a str,
    /// The PCI address as NVML writes it: `00000000:07:00.0`.
    #[serde(rename = "pciBusID")]
    pub pci_bus_id: &'a str,
    /// `unsupported`, `disabled` or `enabled`.
    pub mig_mode: &'static str,
    /// The MIG mode after the next reset of the GPU; null where it is the same.
    pub mig_mode_pending: Option<&'static str>,
    /// The profiles that the GPU offers now; empty with MIG off.
    pub profiles: Vec<ProfileItem<'a>>,
    /// The profiles that the GPU would offer with MIG on; empty where MIG is on.
    #[serde(rename = "profilesWithMIGOn")]
    pub profiles_with_mig_on: Vec<ProfileItem<'a>>,
    /// Every GPU instance that the driver lists.
    pub instances: Vec<InstanceItem>,
    /// The number of free memory slices.
    pub free_slices: u32,
    /// The loss by fragmentation in percent, 0 to 100; null with MIG off, or where it takes too long to find out.
    pub fragmentation_percent: Option<u32>,
    /// The use: `mig`, `free`, `exclusive`, `shared`, `foreign`, `unusable` or `unknown`.
    pub r#use: &'static str,
    /// The use in words: the holder, the process, or the reason.
    pub use_reason: String,
    /// The memory in bytes that the GPU gives out; null where it is not known, and in MIG mode.
    pub memory_bytes: Option<u64>,
    /// The memory in bytes that shares have booked.
    pub booked_bytes: u64,
    /// The memory in bytes of processes without a lease; null where it is not known, and in MIG mode.
    pub foreign_bytes: Option<u64>,
    /// Why the GPU gives nothing new; null where it does.
    pub closed: Option<ClosedItem>,
    /// The driver's first failure about this GPU; null where it answered all.
    pub error: Option<String>,
    /// The memory slices, from slice 0 on.
    pub slices: Vec<MemorySlice>,
}

/// Why a GPU gives nothing new.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosedItem {
    /// `cordoned`, and the driver's signs: `lost`, `row-remap-failed`, `row-remap-pending`, `page-retirement-pending`,
    /// `uncorrectable-errors`, `recovery-action`, `fabric-down`.
    pub reasons: Vec<String>,
    /// All of them in words.
    pub why: String,
    /// The administrator's next step.
    pub remedy: String,
}

/// One memory slice of a GPU.
#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
pub struct MemorySlice {
    /// `free`, `leased`, `idle`, `quarantined`, `layout` or `foreign`.
    pub state: &'static str,
    /// The profile of the instance on it; null where the slice is free.
    pub profile: Option<String>,
    /// The ids of the leases on it; several where a pod's containers share the instance.
    pub leases: Vec<String>,
}

/// A MIG profile of a GPU.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileItem<'a> {
    /// The name: `1g.10gb`.
    pub name: &'a str,
    /// The GPU instance profile's id in NVML.
    #[serde(rename = "profileID")]
    pub id: u32,
    /// The number of instances that the driver would still make; null where it does not say.
    pub instances_free: Option<u32>,
    /// The largest number of instances on an empty GPU.
    pub instances_total: u32,
    /// The memory in bytes.
    pub memory_bytes: u64,
    /// Whether the profile supports peer-to-peer access.
    pub p2p: bool,
    /// The number of multiprocessors (SM).
    pub multiprocessors: u32,
    /// The number of video decoders (NVDEC).
    pub decoders: u32,
    /// The number of video encoders (NVENC).
    pub encoders: u32,
    /// The number of copy engines (CE).
    pub copy_engines: u32,
    /// The number of JPEG decoders.
    pub jpegs: u32,
    /// The number of optical flow accelerators (OFA).
    pub ofas: u32,
}

/// A GPU instance of the driver.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceItem {
    /// The id on its GPU.
    #[serde(rename = "gpuInstanceID")]
    pub id: u32,
    /// The profile's name, or its id where the driver offers no such profile.
    pub profile: String,
    /// The memory slices that it takes.
    pub mig_placement: Placement,
}

impl InstanceItem {
    pub fn new(gpu: &Gpu, instance: &GpuInstance) -> InstanceItem {
        let id = instance.profile_id;
        InstanceItem {
            id: instance.id,
            profile: (gpu.profile(id)).map_or_else(|| id.to_string(), |p| p.name.clone()),
            mig_placement: instance.placement,
        }
    }
}
