//! GPUs without MIG: no hardware of this kind was measured, so the codes are those that nvml.h gives for
//! a GPU that does not support the call.

use crate::common::{Nvml, Sim};
use nvml_sim::abi::types::*;

const NOT_SUPPORTED: u32 = 3;
/// Each model with its memory in MiB and its architecture's number.
const MODELS: [(&str, u64, u32); 5] = [
    ("T4-16GB", 15360, 6),
    ("A10-24GB", 23028, 7),
    ("L4-24GB", 23034, 8),
    ("L40S-48GB", 46068, 8),
    ("RTX-3060-12GB", 12288, 7),
];

fn each_model(test: impl Fn(&Nvml, u64)) {
    for (model, _, _) in MODELS {
        let sim = Sim::new(&format!("--gpu {model}"));
        let nvml = sim.init();
        test(&nvml, nvml.gpu(0));
    }
}

#[test]
fn refuses_calls_about_mig() {
    each_model(|nvml, gpu| {
        let (mut current, mut pending) = (9_u32, 9_u32);
        let args = [gpu, &raw mut current as u64, &raw mut pending as u64];
        assert_eq!(nvml.call("nvmlDeviceGetMigMode", &args), NOT_SUPPORTED);
        assert_eq!((current, pending), (9, 9));
        let set = nvml.ask("nvmlDeviceSetMigMode", &[gpu, 1], 9_u32);
        assert_eq!(set, Err(NOT_SUPPORTED));
        assert_eq!(
            nvml.ask("nvmlDeviceGetMaxMigDeviceCount", &[gpu], 9_u32),
            Ok(0)
        );
        assert_eq!(nvml.mig_device(gpu, 0), Err(NOT_SUPPORTED));
        for call in [
            "nvmlDeviceGetGpuInstanceRemainingCapacity",
            "nvmlDeviceGetGpuInstanceById",
        ] {
            assert_eq!(
                nvml.ask(call, &[gpu, 19], 9_u32),
                Err(NOT_SUPPORTED),
                "{call}"
            );
        }
        let create = nvml.ask("nvmlDeviceCreateGpuInstance", &[gpu, 19], 0_u64);
        assert_eq!(create, Err(NOT_SUPPORTED));
        // SAFETY: all-zero is a value of the struct, which is numbers only.
        let empty: GpuInstanceProfileInfo = unsafe { std::mem::zeroed() };
        let info = nvml.ask("nvmlDeviceGetGpuInstanceProfileInfo", &[gpu, 0], empty);
        assert_eq!(info.map(|info| info.id), Err(NOT_SUPPORTED));
    });
}
