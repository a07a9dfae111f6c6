//! GPUs without MIG: no hardware of this kind was measured, so the codes are those that nvml.h gives for
//! a GPU that does not support the call.

use crate::common::{Sim, zeroed};
use nvml_sim::abi::types::*;

const NOT_SUPPORTED: u32 = 3;
#[test]
fn refuses_calls_about_mig() {
    for model in [
        "T4-16GB",
        "A10-24GB",
        "L4-24GB",
        "L40S-48GB",
        "RTX-3060-12GB",
    ] {
        let sim = Sim::new(&format!("--gpu {model}"));
        let nvml = sim.init();
        let gpu = nvml.gpu(0);
        let (mut current, mut pending) = (9_u32, 9_u32);
        let args = [gpu, &raw mut current as u64, &raw mut pending as u64];
        let mode = nvml.call("nvmlDeviceGetMigMode", &args);
        assert_eq!((mode, current, pending), (NOT_SUPPORTED, 9, 9), "{model}");
        let most = nvml.ask("nvmlDeviceGetMaxMigDeviceCount", &[gpu], 9_u32);
        assert_eq!(most, Ok(0), "{model}");
        assert_eq!(nvml.mig_device(gpu, 0), Err(NOT_SUPPORTED), "{model}");
        assert_eq!(nvml.create_gi(gpu, 19), Err(NOT_SUPPORTED), "{model}");
        for (call, number) in [
            ("nvmlDeviceSetMigMode", 1),
            ("nvmlDeviceGetGpuInstanceRemainingCapacity", 19),
            ("nvmlDeviceGetGpuInstanceById", 19),
        ] {
            let answer = nvml.ask(call, &[gpu, number], 9_u64);
            assert_eq!(answer, Err(NOT_SUPPORTED), "{model}: {call}");
        }
        let empty: GpuInstanceProfileInfo = zeroed();
        let info = nvml.ask("nvmlDeviceGetGpuInstanceProfileInfo", &[gpu, 0], empty);
        assert_eq!(info.map(|info| info.id), Err(NOT_SUPPORTED), "{model}");
    }
}
