//! The structs against the sizes and offsets that nvml.h 13 gives them (`sizeof`, `offsetof` and
//! `_Alignof` of a C program that includes it).

use std::mem::{align_of, offset_of, size_of};

use nvml_sim::abi::types::*;

macro_rules! sizes {
    ($($ty:ident $size:literal $align:literal;)*) => {
        $(assert_eq!((size_of::<$ty>(), align_of::<$ty>()), ($size, $align), stringify!($ty));)*
    };
}

#[test]
fn sizes() {
    sizes! {
        Span 8 4;
        GpuInstanceProfileInfo 48 8;
        GpuInstanceProfileInfo_v2 152 8;
        GpuInstanceProfileInfo_v3 152 8;
        GpuInstanceInfo 24 8;
        ComputeInstanceProfileInfo 36 4;
        ComputeInstanceProfileInfo_v2 136 4;
        ComputeInstanceProfileInfo_v3 140 4;
        ComputeInstanceInfo 32 8;
        DeviceAttributes 40 8;
        Memory 24 8;
        Memory_v2 40 8;
        PciInfo 68 4;
        PciInfoExt 64 4;
        ProcessInfo 24 8;
        ProcessInfo_v1 16 8;
        EventData 32 8;
        FieldValue 40 8;
        GpuFabricInfo_v2 36 4;
    }
}

#[test]
fn offsets() {
    let ofa = offset_of!(GpuInstanceProfileInfo, counts.engines.ofa);
    assert_eq!(ofa, 36);
    assert_eq!(offset_of!(GpuInstanceProfileInfo, memory_size_mb), 40);
    assert_eq!(offset_of!(GpuInstanceProfileInfo_v2, memory_size_mb), 48);
    assert_eq!(offset_of!(GpuInstanceProfileInfo_v2, name), 56);
    assert_eq!(offset_of!(GpuInstanceProfileInfo_v3, memory_size_mb), 40);
    assert_eq!(offset_of!(GpuInstanceProfileInfo_v3, name), 48);
    assert_eq!(offset_of!(GpuInstanceProfileInfo_v3, capabilities), 144);
    assert_eq!(offset_of!(GpuInstanceInfo, id), 8);
    assert_eq!(offset_of!(GpuInstanceInfo, profile_id), 12);
    assert_eq!(offset_of!(GpuInstanceInfo, placement), 16);
    assert_eq!(offset_of!(ComputeInstanceInfo, gpu_instance), 8);
    assert_eq!(offset_of!(ComputeInstanceInfo, id), 16);
    assert_eq!(offset_of!(ComputeInstanceInfo, profile_id), 20);
    assert_eq!(offset_of!(ComputeInstanceInfo, placement), 24);
    assert_eq!(offset_of!(DeviceAttributes, gpu_instance_slice_count), 24);
    let slices = offset_of!(DeviceAttributes, compute_instance_slice_count);
    assert_eq!(slices, 28);
    assert_eq!(offset_of!(DeviceAttributes, memory_size_mb), 32);
}

#[test]
fn versions() {
    assert_eq!(version::<GpuInstanceProfileInfo_v2>(2), 0x0200_0098);
    assert_eq!(version::<GpuInstanceProfileInfo_v3>(3), 0x0300_0098);
    assert_eq!(version::<ComputeInstanceProfileInfo_v2>(2), 0x0200_0088);
    assert_eq!(version::<ComputeInstanceProfileInfo_v3>(3), 0x0300_008c);
    assert_eq!(version::<Memory_v2>(2), 0x0200_0028);
    assert_eq!(version::<GpuFabricInfo_v2>(2), 0x0200_0024);
}
