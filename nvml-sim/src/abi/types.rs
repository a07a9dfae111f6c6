//! The structs of nvml.h 13, in the names it has for them without `nvml` and `_t`.

use super::handle::Handle;
pub use super::pointers::Plain;
use super::pointers::Text;
use crate::engine::{Engines, Placement};

/// Returns the first field of a versioned struct: its size and its version.
pub const fn version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

macro_rules! structs {
    ($(
        $(#[$meta:meta])*
        $name:ident { $($field:ident: $ty:ty,)* }
    )*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(non_camel_case_types)]
        pub struct $name { $(pub $field: $ty,)* }
        impl Plain for $name {}
    )*};
}

structs! {
    /// `nvmlGpuInstancePlacement_t` and `nvmlComputeInstancePlacement_t`.
    Span { start: u32, size: u32, }

    /// The counts in the middle of the structs of profiles.
    ProfileCounts { slices: u32, instances: u32, multiprocessors: u32, engines: Engines, }

    GpuInstanceProfileInfo {
        id: u32,
        is_p2p_supported: u32,
        counts: ProfileCounts,
        memory_size_mb: u64,
    }

    GpuInstanceProfileInfo_v2 {
        version: u32,
        id: u32,
        is_p2p_supported: u32,
        counts: ProfileCounts,
        memory_size_mb: u64,
        name: [u8; 96],
    }

    GpuInstanceProfileInfo_v3 {
        version: u32,
        id: u32,
        counts: ProfileCounts,
        memory_size_mb: u64,
        name: [u8; 96],
        capabilities: u32,
    }

    GpuInstanceInfo { device: Handle, id: u32, profile_id: u32, placement: Span, }

    ComputeInstanceProfileInfo { id: u32, counts: ProfileCounts, }

    ComputeInstanceProfileInfo_v2 {
        version: u32,
        info: ComputeInstanceProfileInfo,
        name: [u8; 96],
    }

    ComputeInstanceProfileInfo_v3 {
        version: u32,
        info: ComputeInstanceProfileInfo,
        name: [u8; 96],
        capabilities: u32,
    }

    /// The struct of `nvmlComputeInstanceGetInfo`, without the placement that the second version
    /// adds.
    ComputeInstanceInfo_v1 { device: Handle, gpu_instance: Handle, id: u32, profile_id: u32, }

    ComputeInstanceInfo {
        device: Handle,
        gpu_instance: Handle,
        id: u32,
        profile_id: u32,
        placement: Span,
    }

    /// The struct of `nvmlDeviceGetAttributes` in its first version.
    DeviceAttributes_v1 { multiprocessors: u32, engines: Engines, }

    DeviceAttributes {
        first: DeviceAttributes_v1,
        gpu_instance_slice_count: u32,
        compute_instance_slice_count: u32,
        memory_size_mb: u64,
    }

    Memory { total: u64, free: u64, used: u64, }

    Memory_v2 { version: u32, total: u64, reserved: u64, free: u64, used: u64, }

    /// The struct of `nvmlDeviceSetMemoryLimits_v1`, with the directory of a cgroup.
    SetMemoryLimits { name_space: Text, soft_limit: u64, hard_limit: u64, }

    /// The struct of `nvmlDeviceGetMemoryLimits_v1`.
    GetMemoryLimits { name_space: Text, soft_limit: u64, hard_limit: u64, current_used: u64, }

    Bar1Memory { total: u64, free: u64, used: u64, }

    /// The numbers in the middle of the structs of PCI.
    PciIds { domain: u32, bus: u32, device: u32, pci_device_id: u32, pci_subsystem_id: u32, }

    /// The struct of `nvmlDeviceGetPciInfo` and of its second version.
    PciInfo_v1 { bus_id_legacy: [u8; 16], ids: PciIds, }

    PciInfo { legacy: PciInfo_v1, bus_id: [u8; 32], }

    PciInfoExt { version: u32, ids: PciIds, base_class: u32, sub_class: u32, bus_id: [u8; 32], }

    Utilization { gpu: u32, memory: u32, }

    ProcessInfo_v1 { pid: u32, used_gpu_memory: u64, }

    /// Version 2 and, in the headers since, the plain name.
    ProcessInfo {
        pid: u32,
        used_gpu_memory: u64,
        gpu_instance_id: u32,
        compute_instance_id: u32,
    }

    EventData {
        device: Handle,
        event_type: u64,
        event_data: u64,
        gpu_instance_id: u32,
        compute_instance_id: u32,
    }

    GpuFabricInfo_v2 {
        version: u32,
        cluster_uuid: [u8; 16],
        status: u32,
        clique_id: u32,
        state: u8,
        health_mask: u32,
    }

    FieldValue {
        field_id: u32,
        scope_id: u32,
        timestamp: u64,
        latency_usec: u64,
        value_type: u32,
        nvml_return: u32,
        value: u64,
    }
}

impl From<Placement> for Span {
    fn from(p: Placement) -> Span {
        let Placement { start, size } = p;
        Span { start, size }
    }
}

impl From<Span> for Placement {
    fn from(s: Span) -> Placement {
        let Span { start, size } = s;
        Placement { start, size }
    }
}
