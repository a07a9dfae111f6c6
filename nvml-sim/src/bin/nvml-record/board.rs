//! The questions about a whole GPU. For values that change by themselves it records only the return
//! code.

use crate::library::{Gpu, ask, call, text};
use nvml_wrapper_sys::bindings::{
    nvmlBAR1Memory_t, nvmlDeviceAttributes_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlUtilization_t,
};
use std::ffi::{CString, c_char};

const MIB: u64 = 1 << 20;
/// `nvmlMemory_v2`: 40 bytes, version 2.
const MEMORY_V2: u32 = 0x0200_0028;

pub fn record(gpu: &Gpu) {
    identity(gpu);
    memory(gpu);
    sensors(gpu);
    look_ups(gpu);
}

fn identity(gpu: &Gpu) {
    let mut name = [0 as c_char; 96];
    ask!(gpu, nvmlDeviceGetName(name.as_mut_ptr(), 96); "" => text(&name));
    ask!(gpu, nvmlDeviceGetName(name.as_mut_ptr(), 3); "3 bytes");
    let mut number = 0;
    ask!(gpu, nvmlDeviceGetArchitecture(&mut number); "" => number);
    let (mut major, mut minor) = (0, 0);
    ask!(gpu, nvmlDeviceGetCudaComputeCapability(&mut major, &mut minor);
        "" => format!("{major}.{minor}"));
    // SAFETY: a struct of numbers and characters, for which zeros are a value.
    let mut pci: nvmlPciInfo_t = unsafe { std::mem::zeroed() };
    ask!(gpu, nvmlDeviceGetPciInfo_v3(&mut pci); "" => format!("device {:#010x}", pci.pciDeviceId));
    // SAFETY: a struct of numbers, for which zeros are a value.
    let mut attributes: nvmlDeviceAttributes_t = unsafe { std::mem::zeroed() };
    ask!(gpu, nvmlDeviceGetAttributes_v2(&mut attributes); "");
}

fn memory(gpu: &Gpu) {
    for version in [MEMORY_V2, 0] {
        // SAFETY: a struct of numbers, for which zeros are a value.
        let mut memory: nvmlMemory_v2_t = unsafe { std::mem::zeroed() };
        memory.version = version;
        let which = format!("{version:#010x}");
        if ask!(gpu, nvmlDeviceGetMemoryInfo_v2(&mut memory); which) == 0 {
            gpu.row("memory, MiB", memory.total / MIB);
            gpu.row("reserved memory, bytes", memory.reserved);
        }
    }
    // SAFETY: a struct of numbers, for which zeros are a value.
    let mut bar1: nvmlBAR1Memory_t = unsafe { std::mem::zeroed() };
    let code = ask!(gpu, nvmlDeviceGetBAR1MemoryInfo(&mut bar1); "");
    if code == 0 {
        gpu.row("BAR1, MiB", bar1.bar1Total / MIB);
    }
    let (mut processes, nowhere) = (0, std::ptr::null_mut());
    let listed = call!(
        gpu.library,
        nvmlDeviceGetComputeRunningProcesses_v3(gpu.device, &mut processes, nowhere)
    );
    if (code, listed, processes) == (0, 0, 0) {
        gpu.row("BAR1 in use while idle, bytes", bar1.bar1Used);
    }
}

fn sensors(gpu: &Gpu) {
    let (mut current, mut pending, mut number) = (0, 0, 0);
    ask!(gpu, nvmlDeviceGetEccMode(&mut current, &mut pending); "");
    let mut words = [0 as c_char; 96];
    ask!(gpu, nvmlDeviceGetVbiosVersion(words.as_mut_ptr(), 96); "");
    ask!(gpu, nvmlDeviceGetBoardPartNumber(words.as_mut_ptr(), 96); "");
    ask!(gpu, nvmlDeviceGetTemperature(0, &mut number); 0);
    let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
    ask!(gpu, nvmlDeviceGetUtilizationRates(&mut rates); "");
    ask!(gpu, nvmlDeviceGetPowerUsage(&mut number); "");
    for clock in 0..4 {
        ask!(gpu, nvmlDeviceGetClockInfo(clock, &mut number); clock);
    }
}

/// Names under which a GPU is not to be found. The question is recorded without the UUID.
fn look_ups(gpu: &Gpu) {
    let uuid = gpu.uuid();
    for (question, name) in [
        ("GPU UUID", uuid.clone()),
        ("GPU UUID in capitals", uuid.to_ascii_uppercase()),
        ("MIG-<GPU UUID>/1/0", format!("MIG-{uuid}/1/0")),
    ] {
        // With instances on the GPU the last one may be there.
        let Ok(name) = CString::new(name) else {
            continue;
        };
        let mut found = std::ptr::null_mut();
        let by_uuid = call!(
            gpu.library,
            nvmlDeviceGetHandleByUUID(name.as_ptr(), &mut found)
        );
        gpu.row(&format!("nvmlDeviceGetHandleByUUID({question})"), by_uuid);
    }
}
