//! The exact state of the machine, as mig-parted's checkpoints hold it. GPUs without MIG are left out.

use crate::gpu::{DetailedCompute, DetailedGpu, DetailedInstance};
use crate::model::MigMode;
use serde::{Deserialize, Serialize};

pub(super) const VERSION: &str = "v1";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct State {
    pub version: String,
    pub mig_state: MigState,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MigState {
    pub devices: Option<Vec<Device>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Device {
    #[serde(rename = "UUID")]
    pub uuid: String,
    pub mig_mode: u32,
    pub gpu_instances: Option<Vec<GpuInstance>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GpuInstance {
    /// NVML's number of the profile, not its id.
    #[serde(rename = "ProfileID")]
    pub profile: u32,
    pub placement: Place,
    pub compute_instances: Option<Vec<ComputeInstance>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Place {
    pub start: u32,
    pub size: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ComputeInstance {
    #[serde(rename = "ProfileID")]
    pub profile: u32,
    /// NVML knows one profile of engines, 0: the compute instances share them.
    #[serde(rename = "EngProfileID")]
    pub engines: u32,
}

/// Returns the state of a machine as a checkpoint, in one line without a line end.
pub fn checkpoint(gpus: &[DetailedGpu]) -> String {
    let with_mig = gpus
        .iter()
        .filter(|gpu| gpu.gpu.mig != MigMode::Unsupported);
    let state = State {
        version: VERSION.to_owned(),
        mig_state: MigState {
            devices: some(with_mig.map(device).collect()),
        },
    };
    serde_json::to_string(&state).expect("only strings are keys")
}

fn device(gpu: &DetailedGpu) -> Device {
    Device {
        uuid: gpu.gpu.uuid.to_string(),
        mig_mode: u32::from(gpu.gpu.mig == MigMode::Enabled),
        gpu_instances: some(gpu.instances.iter().map(gpu_instance).collect()),
    }
}

fn gpu_instance(instance: &DetailedInstance) -> GpuInstance {
    let compute = |ci: &DetailedCompute| ComputeInstance {
        profile: ci.number,
        engines: 0,
    };
    GpuInstance {
        profile: instance.number,
        placement: Place {
            start: instance.placement.start,
            size: instance.placement.size,
        },
        compute_instances: some(instance.compute_instances.iter().map(compute).collect()),
    }
}

/// Go writes an empty list as null.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
