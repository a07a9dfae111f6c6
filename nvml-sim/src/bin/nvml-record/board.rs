//! The questions about a whole GPU. For values that change by themselves it records only the return
//! code.

use crate::library::{Gpu, Library, call, text};
use nvml_wrapper_sys::bindings::{
    nvmlBAR1Memory_t, nvmlDeviceAttributes_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlUtilization_t,
};
use std::ffi::{CString, c_char};

const MIB: u64 = 1 << 20;
/// `nvmlMemory_v2`: 40 bytes, version 2.
const MEMORY_V2: u32 = 0x0200_0028;

pub fn record(library: &Library, gpu: &Gpu) {
    identity(library, gpu);
    memory(library, gpu);
    sensors(library, gpu);
    look_ups(library, gpu);
}

fn identity(library: &Library, gpu: &Gpu) {
    let device = gpu.device;
    let mut name = [0 as c_char; 96];
    let code = call!(library, nvmlDeviceGetName(device, name.as_mut_ptr(), 96));
    gpu.answer("nvmlDeviceGetName()", code, || text(&name));
    let code = call!(library, nvmlDeviceGetName(device, name.as_mut_ptr(), 3));
    gpu.answer("nvmlDeviceGetName(3 bytes)", code, String::new);
    let mut number = 0;
    let code = call!(library, nvmlDeviceGetArchitecture(device, &mut number));
    gpu.answer("nvmlDeviceGetArchitecture()", code, || number.to_string());
    let (mut major, mut minor) = (0, 0);
    let code = call!(
        library,
        nvmlDeviceGetCudaComputeCapability(device, &mut major, &mut minor)
    );
    gpu.answer("nvmlDeviceGetCudaComputeCapability()", code, || {
        format!("{major}.{minor}")
    });
    // SAFETY: a struct of numbers and characters, for which zeros are a value.
    let mut pci: nvmlPciInfo_t = unsafe { std::mem::zeroed() };
    let code = call!(library, nvmlDeviceGetPciInfo_v3(device, &mut pci));
    gpu.answer("nvmlDeviceGetPciInfo_v3()", code, || {
        format!("device {:#010x}", pci.pciDeviceId)
    });
    // SAFETY: a struct of numbers, for which zeros are a value.
    let mut attributes: nvmlDeviceAttributes_t = unsafe { std::mem::zeroed() };
    let code = call!(library, nvmlDeviceGetAttributes_v2(device, &mut attributes));
    gpu.answer("nvmlDeviceGetAttributes_v2()", code, String::new);
}

fn memory(library: &Library, gpu: &Gpu) {
    let device = gpu.device;
    for version in [MEMORY_V2, 0] {
        // SAFETY: a struct of numbers, for which zeros are a value.
        let mut memory: nvmlMemory_v2_t = unsafe { std::mem::zeroed() };
        memory.version = version;
        let code = call!(library, nvmlDeviceGetMemoryInfo_v2(device, &mut memory));
        let question = format!("nvmlDeviceGetMemoryInfo_v2({version:#010x})");
        gpu.answer(&question, code, String::new);
        if code == 0 {
            gpu.row("memory, MiB", memory.total / MIB);
            gpu.row("reserved memory, bytes", memory.reserved);
        }
    }
    // SAFETY: a struct of numbers, for which zeros are a value.
    let mut bar1: nvmlBAR1Memory_t = unsafe { std::mem::zeroed() };
    let code = call!(library, nvmlDeviceGetBAR1MemoryInfo(device, &mut bar1));
    gpu.answer("nvmlDeviceGetBAR1MemoryInfo()", code, String::new);
    if code == 0 {
        gpu.row("BAR1, MiB", bar1.bar1Total / MIB);
    }
    let (mut processes, nowhere) = (0, std::ptr::null_mut());
    let listed = call!(
        library,
        nvmlDeviceGetComputeRunningProcesses_v3(device, &mut processes, nowhere)
    );
    if (code, listed, processes) == (0, 0, 0) {
        gpu.row("BAR1 in use while idle, bytes", bar1.bar1Used);
    }
}

fn sensors(library: &Library, gpu: &Gpu) {
    let device = gpu.device;
    let code_of = |question: &str, code| gpu.answer(question, code, String::new);
    let (mut current, mut pending, mut number) = (0, 0, 0);
    code_of(
        "nvmlDeviceGetEccMode()",
        call!(
            library,
            nvmlDeviceGetEccMode(device, &mut current, &mut pending)
        ),
    );
    let mut words = [0 as c_char; 96];
    code_of(
        "nvmlDeviceGetVbiosVersion()",
        call!(
            library,
            nvmlDeviceGetVbiosVersion(device, words.as_mut_ptr(), 96)
        ),
    );
    code_of(
        "nvmlDeviceGetBoardPartNumber()",
        call!(
            library,
            nvmlDeviceGetBoardPartNumber(device, words.as_mut_ptr(), 96)
        ),
    );
    code_of(
        "nvmlDeviceGetTemperature(0)",
        call!(library, nvmlDeviceGetTemperature(device, 0, &mut number)),
    );
    let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
    code_of(
        "nvmlDeviceGetUtilizationRates()",
        call!(library, nvmlDeviceGetUtilizationRates(device, &mut rates)),
    );
    code_of(
        "nvmlDeviceGetPowerUsage()",
        call!(library, nvmlDeviceGetPowerUsage(device, &mut number)),
    );
    for clock in 0..4 {
        code_of(
            &format!("nvmlDeviceGetClockInfo({clock})"),
            call!(library, nvmlDeviceGetClockInfo(device, clock, &mut number)),
        );
    }
}

/// Names under which a GPU is not to be found. The question is recorded without the UUID.
fn look_ups(library: &Library, gpu: &Gpu) {
    let uuid = library.uuid(gpu);
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
        let code = call!(
            library,
            nvmlDeviceGetHandleByUUID(name.as_ptr(), &mut found)
        );
        gpu.answer(
            &format!("nvmlDeviceGetHandleByUUID({question})"),
            code,
            String::new,
        );
    }
}
