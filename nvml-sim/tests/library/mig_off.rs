//! Answers of a GPU whose MIG mode is off, as an H100 and an H200 gave them on 2026-11-22 (driver
//! 580.159.04). Each test is a row of what hardware answered and the simulation once did not.

use crate::common::{Nvml, Sim};
use nvml_sim::abi::types::*;

/// Profile ids that only other GPUs have, and one that no GPU has.
const ELSEWHERE: [u64; 2] = [47, 65];
const NOWHERE: u64 = 77;
/// The profiles of both models with their capacity.
const CAPACITY: [(u64, u32); 7] = [(19, 7), (20, 1), (15, 4), (14, 3), (9, 2), (5, 1), (0, 1)];

fn each_model(test: impl Fn(&Nvml, u64)) {
    for model in ["H100-80GB", "H200-141GB"] {
        let sim = Sim::new(&format!("--gpu {model} --mig off"));
        let nvml = sim.init();
        test(&nvml, nvml.gpu(0));
    }
}

#[test]
fn capacity_equals_empty_gpu() {
    each_model(|nvml, gpu| {
        let ask = |id| {
            let call = "nvmlDeviceGetGpuInstanceRemainingCapacity";
            nvml.ask(call, &[gpu, id], 99_u32)
        };
        for (id, capacity) in CAPACITY {
            assert_eq!(ask(id), Ok(capacity), "profile {id}");
        }
        assert_eq!(ELSEWHERE.map(ask), [Ok(0), Ok(0)]);
        assert_eq!(ask(NOWHERE), Err(2));
    });
}

#[test]
fn finds_no_instance() {
    each_model(|nvml, gpu| {
        for (id, _) in CAPACITY {
            let (mut all, mut count) = ([0_u64; 7], 99_u32);
            let args = [gpu, id, all.as_mut_ptr() as u64, &raw mut count as u64];
            assert_eq!(nvml.call("nvmlDeviceGetGpuInstances", &args), 0);
            assert_eq!(count, 0);
        }
        let by_id = |id| nvml.ask("nvmlDeviceGetGpuInstanceById", &[gpu, id], 0_u64);
        assert_eq!([0, 1, 7].map(by_id), [Err(6); 3]);
        let by_index = |index| nvml.mig_device(gpu, index);
        assert_eq!([0, 6, 7, 99].map(by_index), [Err(6); 4]);
    });
}

#[test]
fn placements_are_known() {
    each_model(|nvml, gpu| {
        let ask = |id| {
            let call = "nvmlDeviceGetGpuInstancePossiblePlacements_v2";
            let mut count = 99_u32;
            match nvml.call(call, &[gpu, id, 0, &raw mut count as u64]) {
                0 => Ok(count),
                code => Err(code),
            }
        };
        assert_eq!(ask(19), Ok(7));
        assert_eq!(ELSEWHERE.map(ask), [Ok(0), Ok(0)]);
        assert_eq!(ask(NOWHERE), Err(2));
    });
}

fn profile_info(version: u32) -> GpuInstanceProfileInfo_v2 {
    // SAFETY: all-zero is a value of the struct, which is numbers only.
    let empty: GpuInstanceProfileInfo_v2 = unsafe { std::mem::zeroed() };
    GpuInstanceProfileInfo_v2 { version, ..empty }
}

#[test]
fn refuses_profiles_of_other_gpus() {
    let v2 = version::<GpuInstanceProfileInfo_v2>(2);
    each_model(|nvml, gpu| {
        let ask = |id| {
            let call = "nvmlDeviceGetGpuInstanceProfileInfoByIdV";
            let asked = nvml.ask(call, &[gpu, id], profile_info(v2));
            asked.map(|info| info.id)
        };
        assert_eq!(ask(19), Ok(19));
        assert_eq!(ELSEWHERE.map(ask), [Err(6), Err(6)]);
        assert_eq!(ask(NOWHERE), Err(2));
    });
}

#[test]
fn driver_clears_the_version() {
    const V1_SIZE: u32 = 88;
    each_model(|nvml, gpu| {
        let call = "nvmlDeviceGetGpuInstanceProfileInfoV";
        for number in [2, 3] {
            let version = version::<GpuInstanceProfileInfo_v2>(number);
            let info = nvml.ask(call, &[gpu, 0], profile_info(version)).unwrap();
            assert_eq!((info.version, info.id), (0, 19));
        }
        let v9 = version::<GpuInstanceProfileInfo_v2>(9);
        for version in [0, V1_SIZE, 1 << 24 | V1_SIZE, v9] {
            let asked = nvml.ask(call, &[gpu, 0], profile_info(version));
            assert_eq!(asked.unwrap_err(), 2, "{version:#x}");
        }
    });
}

#[test]
fn refuses_unversioned_memory_struct() {
    each_model(|nvml, gpu| {
        let asked = Memory_v2 {
            version: 0,
            total: 0,
            reserved: 0,
            free: 0,
            used: 0,
        };
        let answer = nvml.ask("nvmlDeviceGetMemoryInfo_v2", &[gpu], asked);
        assert_eq!(answer.unwrap_err(), 13);
    });
}

#[test]
fn h100_reserves_480_mib() {
    let sim = Sim::new("--gpu H100-80GB --mig off");
    let nvml = sim.init();
    let gpu = nvml.gpu(0);
    let asked = Memory_v2 {
        version: version::<Memory_v2>(2),
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    let memory = nvml.ask("nvmlDeviceGetMemoryInfo_v2", &[gpu], asked);
    assert_eq!(memory.unwrap().reserved, 503_316_480);
    let asked = Bar1Memory {
        total: 0,
        free: 0,
        used: 0,
    };
    let bar1 = nvml.ask("nvmlDeviceGetBAR1MemoryInfo", &[gpu], asked);
    assert_eq!(bar1.unwrap().used, 1_703_936);
}

#[test]
fn board_and_sensors_have_values() {
    each_model(|nvml, gpu| {
        let (mut current, mut pending) = (9_u32, 9_u32);
        let args = [gpu, &raw mut current as u64, &raw mut pending as u64];
        assert_eq!(nvml.call("nvmlDeviceGetEccMode", &args), 0);
        assert_eq!((current, pending), (1, 1));
        for call in ["nvmlDeviceGetVbiosVersion", "nvmlDeviceGetBoardPartNumber"] {
            assert!(!nvml.ask_text(call, &[gpu]).unwrap().is_empty(), "{call}");
        }
        let celsius = nvml.ask("nvmlDeviceGetTemperature", &[gpu, 0], 0_u32);
        assert!((10..90).contains(&celsius.unwrap()));
        let idle = Utilization { gpu: 9, memory: 9 };
        let rates = nvml.ask("nvmlDeviceGetUtilizationRates", &[gpu], idle);
        assert_eq!(rates.map(|r| (r.gpu, r.memory)), Ok((0, 0)));
        assert!(nvml.ask("nvmlDeviceGetPowerUsage", &[gpu], 0_u32).unwrap() > 0);
        for clock in 0..4 {
            let clock = nvml.ask("nvmlDeviceGetClockInfo", &[gpu, clock], 0_u32);
            assert!(clock.unwrap() > 0);
        }
    });
}

#[test]
fn h200_has_measured_memory() {
    let sim = Sim::new("--gpu H200-141GB --mig off");
    let nvml = sim.init();
    let gpu = nvml.gpu(0);
    let v2 = version::<GpuInstanceProfileInfo_v2>(2);
    let memory = |index| {
        let call = "nvmlDeviceGetGpuInstanceProfileInfoV";
        let info = nvml.ask(call, &[gpu, index], profile_info(v2)).unwrap();
        (info.id, info.memory_size_mb)
    };
    assert_eq!(
        [0, 7, 1, 9, 2, 3, 4].map(memory),
        [
            (19, 16384),
            (20, 16384),
            (14, 33280),
            (15, 33280),
            (9, 71424),
            (5, 71424),
            (0, 143360)
        ]
    );
}

/// `nvidia-smi mig -lgip` asks for all profiles and for the capacity of each: with MIG off hardware
/// answers all of it, so the table is whole and everything in it free.
#[test]
fn has_every_profile() {
    let v2 = version::<GpuInstanceProfileInfo_v2>(2);
    each_model(|nvml, gpu| {
        let mut rows = Vec::new();
        for index in 0..10 {
            let call = "nvmlDeviceGetGpuInstanceProfileInfoV";
            let info = match nvml.ask(call, &[gpu, index], profile_info(v2)) {
                Ok(info) => info,
                Err(code) => {
                    assert_eq!(code, 3);
                    continue;
                }
            };
            let call = "nvmlDeviceGetGpuInstanceRemainingCapacity";
            let free = nvml.ask(call, &[gpu, info.id.into()], 99_u32);
            assert_eq!(free, Ok(info.instance_count), "profile {}", info.id);
            rows.push(info.id);
        }
        assert_eq!(rows, [19, 14, 9, 5, 0, 20, 15]);
    });
}
