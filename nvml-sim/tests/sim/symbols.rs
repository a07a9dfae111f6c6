//! The symbols that clients look up by name.

use std::collections::BTreeSet;

use crate::common::Sim;

/// The symbols for managing instances, then those that nvidia-smi, nvidia-ml-py, nvml-wrapper,
/// nvidia-ctk, go-nvlib, mig-parted, the device plugin, the DRA driver and DCGM call besides. If
/// there are two versions the list has both: go-nvml falls back on the first.
const REQUIRED: &str = "
    nvmlInit nvmlInit_v2 nvmlInitWithFlags nvmlShutdown nvmlErrorString
    nvmlSystemGetDriverVersion nvmlSystemGetNVMLVersion
    nvmlSystemGetCudaDriverVersion nvmlSystemGetCudaDriverVersion_v2 nvmlSystemGetProcessName
    nvmlDeviceGetCount nvmlDeviceGetCount_v2
    nvmlDeviceGetHandleByIndex nvmlDeviceGetHandleByIndex_v2
    nvmlDeviceGetHandleByUUID nvmlDeviceGetHandleBySerial
    nvmlDeviceGetHandleByPciBusId nvmlDeviceGetHandleByPciBusId_v2
    nvmlDeviceGetIndex nvmlDeviceGetName nvmlDeviceGetUUID nvmlDeviceGetMinorNumber
    nvmlDeviceGetSerial nvmlDeviceGetBrand nvmlDeviceGetArchitecture
    nvmlDeviceGetCudaComputeCapability nvmlDeviceGetPersistenceMode
    nvmlDeviceGetPciInfo nvmlDeviceGetPciInfo_v2 nvmlDeviceGetPciInfo_v3 nvmlDeviceGetPciInfoExt
    nvmlDeviceGetMemoryInfo nvmlDeviceGetMemoryInfo_v2 nvmlDeviceGetBAR1MemoryInfo
    nvmlDeviceGetMemoryLimits_v1 nvmlDeviceSetMemoryLimits_v1
    nvmlDeviceGetAttributes nvmlDeviceGetAttributes_v2
    nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetComputeRunningProcesses_v2
    nvmlDeviceGetComputeRunningProcesses_v3
    nvmlDeviceGetGraphicsRunningProcesses nvmlDeviceGetGraphicsRunningProcesses_v2
    nvmlDeviceGetGraphicsRunningProcesses_v3
    nvmlDeviceGetMPSComputeRunningProcesses nvmlDeviceGetMPSComputeRunningProcesses_v2
    nvmlDeviceGetMPSComputeRunningProcesses_v3
    nvmlDeviceGetMigMode nvmlDeviceSetMigMode
    nvmlDeviceGetGpuInstanceProfileInfo nvmlDeviceGetGpuInstanceProfileInfoV
    nvmlDeviceGetGpuInstanceProfileInfoByIdV
    nvmlDeviceGetGpuInstancePossiblePlacements nvmlDeviceGetGpuInstancePossiblePlacements_v2
    nvmlDeviceGetGpuInstanceRemainingCapacity
    nvmlDeviceCreateGpuInstance nvmlDeviceCreateGpuInstanceWithPlacement nvmlGpuInstanceDestroy
    nvmlDeviceGetGpuInstances nvmlDeviceGetGpuInstanceById nvmlGpuInstanceGetInfo
    nvmlGpuInstanceGetComputeInstanceProfileInfo nvmlGpuInstanceGetComputeInstanceProfileInfoV
    nvmlGpuInstanceGetComputeInstanceRemainingCapacity
    nvmlGpuInstanceGetComputeInstancePossiblePlacements
    nvmlGpuInstanceCreateComputeInstance nvmlGpuInstanceCreateComputeInstanceWithPlacement
    nvmlComputeInstanceDestroy
    nvmlGpuInstanceGetComputeInstances nvmlGpuInstanceGetComputeInstanceById
    nvmlComputeInstanceGetInfo nvmlComputeInstanceGetInfo_v2
    nvmlDeviceIsMigDeviceHandle nvmlDeviceGetGpuInstanceId nvmlDeviceGetComputeInstanceId
    nvmlDeviceGetMaxMigDeviceCount nvmlDeviceGetMigDeviceHandleByIndex
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle
    nvmlEventSetCreate nvmlDeviceRegisterEvents nvmlDeviceGetSupportedEventTypes
    nvmlEventSetWait nvmlEventSetWait_v2 nvmlEventSetFree
    nvmlDeviceGetFieldValues nvmlDeviceGetMemoryErrorCounter nvmlInternalGetExportTable
";

#[test]
fn exports_required_symbols() {
    let nvml = Sim::new("--gpu A30").load();
    let missing: Vec<_> = REQUIRED
        .split_whitespace()
        .filter(|name| !nvml.has(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn exports_every_faultable_function_once() {
    let nvml = Sim::new("--gpu A30").load();
    let names: Vec<_> = nvml_sim::abi::functions().collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    assert!(names.iter().all(|name| nvml.has(name)));
}
