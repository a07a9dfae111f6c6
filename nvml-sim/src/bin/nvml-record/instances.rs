//! The questions about MIG. None of these calls makes, destroys or switches anything.

use crate::library::{Gpu, Library, call, text};
use nvml_wrapper_sys::bindings::{
    nvmlGpuInstance_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_v2_t,
};

/// `nvmlGpuInstanceProfileInfo_v2`: 152 bytes, version 2.
const V2: u32 = 0x0200_0098;
/// None, the size of version 1, and a version 9.
const NO_VERSIONS: [u32; 3] = [0, 0x0100_0058, 0x0900_0098];
/// Profile ids of other GPUs, and one that no GPU has.
const OTHER_IDS: [u32; 3] = [47, 65, 77];
/// More than a GPU holds of any profile or has placements for.
const MANY: usize = 256;

pub fn record(library: &Library, gpu: &Gpu) {
    let device = gpu.device;
    let (mut current, mut pending, mut most) = (0, 0, 0);
    let code = call!(
        library,
        nvmlDeviceGetMigMode(device, &mut current, &mut pending)
    );
    gpu.answer("nvmlDeviceGetMigMode()", code, || {
        format!("current {current} pending {pending}")
    });
    let count = call!(library, nvmlDeviceGetMaxMigDeviceCount(device, &mut most));
    gpu.answer("nvmlDeviceGetMaxMigDeviceCount()", count, || {
        most.to_string()
    });
    if code != 0 {
        return;
    }
    let ids = profiles(library, gpu);
    let asked = || ids.iter().chain(&OTHER_IDS).copied();
    for id in asked() {
        by_id(library, gpu, id);
    }
    for id in asked() {
        placements(library, gpu, id);
    }
    let there: u32 = ids.iter().map(|id| listed(library, gpu, *id).1).sum();
    if there > 0 {
        println!(
            "# gpu {} has {there} instances: questions about free room and instances are left out",
            gpu.index
        );
        return;
    }
    for id in asked() {
        let mut free = 0;
        let code = call!(
            library,
            nvmlDeviceGetGpuInstanceRemainingCapacity(device, id, &mut free)
        );
        let question = format!("nvmlDeviceGetGpuInstanceRemainingCapacity({id})");
        gpu.answer(&question, code, || free.to_string());
    }
    for id in &ids {
        let (code, count) = listed(library, gpu, *id);
        let question = format!("nvmlDeviceGetGpuInstances({id})");
        gpu.answer(&question, code, || format!("count {count}"));
    }
    for id in [0, 1, 7] {
        let mut found = std::ptr::null_mut();
        let code = call!(
            library,
            nvmlDeviceGetGpuInstanceById(device, id, &mut found)
        );
        gpu.row(&format!("nvmlDeviceGetGpuInstanceById({id})"), code);
    }
    for index in [0, 6, 7, 99] {
        let mut found = std::ptr::null_mut();
        let code = call!(
            library,
            nvmlDeviceGetMigDeviceHandleByIndex(device, index, &mut found)
        );
        gpu.row(
            &format!("nvmlDeviceGetMigDeviceHandleByIndex({index})"),
            code,
        );
    }
}

fn empty(version: u32) -> nvmlGpuInstanceProfileInfo_v2_t {
    // SAFETY: a struct of numbers and characters, for which zeros are a value.
    let mut info: nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    info.version = version;
    info
}

fn shown(i: &nvmlGpuInstanceProfileInfo_v2_t) -> String {
    format!(
        "version {} id {} \"{}\" slices {} instances {} SM {} CE {} DEC {} ENC {} JPEG {} OFA {} P2P {} MiB {}",
        i.version,
        i.id,
        text(&i.name),
        i.sliceCount,
        i.instanceCount,
        i.multiprocessorCount,
        i.copyEngineCount,
        i.decoderCount,
        i.encoderCount,
        i.jpegCount,
        i.ofaCount,
        i.isP2pSupported,
        i.memorySizeMB
    )
}

/// Records all profiles by their index, and gives their ids.
fn profiles(library: &Library, gpu: &Gpu) -> Vec<u32> {
    let call = "nvmlDeviceGetGpuInstanceProfileInfoV";
    let mut ids = Vec::new();
    for index in (0..=18).chain(62..=64) {
        let mut info = empty(V2);
        let code = call!(
            library,
            nvmlDeviceGetGpuInstanceProfileInfoV(gpu.device, index, &mut info)
        );
        gpu.answer(&format!("{call}({index})"), code, || shown(&info));
        if code == 0 {
            ids.push(info.id);
        }
    }
    for version in NO_VERSIONS {
        let mut info = empty(version);
        let code = call!(
            library,
            nvmlDeviceGetGpuInstanceProfileInfoV(gpu.device, 0, &mut info)
        );
        gpu.answer(
            &format!("{call}(0) of version {version:#010x}"),
            code,
            String::new,
        );
    }
    ids
}

fn by_id(library: &Library, gpu: &Gpu, id: u32) {
    let mut info = empty(V2);
    let code = call!(
        library,
        nvmlDeviceGetGpuInstanceProfileInfoByIdV(gpu.device, id, &mut info)
    );
    let question = format!("nvmlDeviceGetGpuInstanceProfileInfoByIdV({id})");
    gpu.answer(&question, code, || shown(&info));
}

fn placements(library: &Library, gpu: &Gpu, id: u32) {
    let mut all = [nvmlGpuInstancePlacement_t { start: 0, size: 0 }; MANY];
    let mut count = MANY as u32;
    let code = call!(
        library,
        nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu.device, id, all.as_mut_ptr(), &mut count)
    );
    let question = format!("nvmlDeviceGetGpuInstancePossiblePlacements_v2({id})");
    gpu.answer(&question, code, || {
        let places = all.iter().take(count as usize);
        let places = places.map(|p| format!(" {}:{}", p.start, p.size));
        format!("count {count}{}", places.collect::<String>())
    });
}

/// The return code and how many instances of a profile there are.
fn listed(library: &Library, gpu: &Gpu, id: u32) -> (u32, u32) {
    let mut all: [nvmlGpuInstance_t; MANY] = [std::ptr::null_mut(); MANY];
    let mut count = MANY as u32;
    let code = call!(
        library,
        nvmlDeviceGetGpuInstances(gpu.device, id, all.as_mut_ptr(), &mut count)
    );
    (code, if code == 0 { count } else { 0 })
}
