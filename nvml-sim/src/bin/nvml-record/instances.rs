//! The questions about MIG. None of these calls makes, destroys or switches anything.

use crate::library::{Gpu, ask, call, text};
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

pub fn record(gpu: &Gpu) {
    let (mut current, mut pending, mut most) = (0, 0, 0);
    let code = ask!(gpu, nvmlDeviceGetMigMode(&mut current, &mut pending);
        "" => format!("current {current} pending {pending}"));
    ask!(gpu, nvmlDeviceGetMaxMigDeviceCount(&mut most); "" => most);
    if code != 0 {
        return;
    }
    let ids = profiles(gpu);
    let asked = || ids.iter().chain(&OTHER_IDS).copied();
    for id in asked() {
        let mut info = empty(V2);
        ask!(gpu, nvmlDeviceGetGpuInstanceProfileInfoByIdV(id, &mut info); id => shown(&info));
    }
    asked().for_each(|id| placements(gpu, id));
    let there: u32 = ids.iter().map(|id| listed(gpu, *id).1).sum();
    if there > 0 {
        println!(
            "# gpu {} has {there} instances: questions about free room and instances are left out",
            gpu.index
        );
        return;
    }
    for id in asked() {
        let mut free = 0;
        ask!(gpu, nvmlDeviceGetGpuInstanceRemainingCapacity(id, &mut free); id => free);
    }
    for id in &ids {
        let (code, count) = listed(gpu, *id);
        let question = format!("nvmlDeviceGetGpuInstances({id})");
        gpu.answer(&question, code, || format!("count {count}"));
    }
    for id in [0, 1, 7] {
        let mut found = std::ptr::null_mut();
        ask!(gpu, nvmlDeviceGetGpuInstanceById(id, &mut found); id);
    }
    for index in [0, 6, 7, 99] {
        let mut found = std::ptr::null_mut();
        ask!(gpu, nvmlDeviceGetMigDeviceHandleByIndex(index, &mut found); index);
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
fn profiles(gpu: &Gpu) -> Vec<u32> {
    let mut ids = Vec::new();
    for index in (0..=18).chain(62..=64) {
        let mut info = empty(V2);
        if ask!(gpu, nvmlDeviceGetGpuInstanceProfileInfoV(index, &mut info); index => shown(&info))
            == 0
        {
            ids.push(info.id);
        }
    }
    for version in NO_VERSIONS {
        let mut info = empty(version);
        let code = call!(
            gpu.library,
            nvmlDeviceGetGpuInstanceProfileInfoV(gpu.device, 0, &mut info)
        );
        let call = "nvmlDeviceGetGpuInstanceProfileInfoV(0)";
        gpu.row(&format!("{call} of version {version:#010x}"), code);
    }
    ids
}

fn placements(gpu: &Gpu, id: u32) {
    let mut all = [nvmlGpuInstancePlacement_t { start: 0, size: 0 }; MANY];
    let mut count = MANY as u32;
    ask!(gpu, nvmlDeviceGetGpuInstancePossiblePlacements_v2(id, all.as_mut_ptr(), &mut count); id => {
        let places = all.iter().take(count as usize);
        let places = places.map(|p| format!(" {}:{}", p.start, p.size));
        format!("count {count}{}", places.collect::<String>())
    });
}

/// The return code and how many instances of a profile there are.
fn listed(gpu: &Gpu, id: u32) -> (u32, u32) {
    let mut all: [nvmlGpuInstance_t; MANY] = [std::ptr::null_mut(); MANY];
    let mut count = MANY as u32;
    let code = call!(
        gpu.library,
        nvmlDeviceGetGpuInstances(gpu.device, id, all.as_mut_ptr(), &mut count)
    );
    (code, if code == 0 { count } else { 0 })
}
