//! `migctl assert`: a `LayoutAssertion`; `apply`: a `LayoutPlan`.

use runmig_lease::{PlannedInstance, PlannedMode};
use serde::Serialize;

/// A configuration against the state of the machine.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LayoutAssertion {
    /// The name of the configuration.
    pub configuration: String,
    /// Whether modes and instances of every GPU are as the configuration says.
    pub applied: bool,
    /// Each GPU.
    pub gpus: Vec<AssertedGpu>,
}

/// A GPU against its target.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AssertedGpu {
    /// The GPU's index in NVML.
    #[serde(rename = "gpuIndex")]
    pub gpu_index: u32,
    /// The GPU's UUID.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: String,
    /// Whether the GPU is as the configuration says.
    pub applied: bool,
    /// The difference, in words; null where there is none.
    pub difference: Option<String>,
}

/// The changes of an apply.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LayoutPlan<'a> {
    /// The name of the configuration.
    pub configuration: &'a str,
    /// Whether the plan was only to be printed.
    pub dry_run: bool,
    /// Whether the changes are made.
    pub applied: bool,
    /// The leases and processes that have to end first, in words; null where nothing blocks the plan.
    pub error: Option<String>,
    /// The GPUs whose MIG mode changes: `gpuIndex`, `gpuUUID`, `migEnabled`, `holders`.
    pub modes: &'a [PlannedMode],
    /// Every instance on the GPUs that the configuration names, and the new ones: `gpuIndex`, `gpuUUID`, `migPlacement`,
    /// `profile`, `computeSlices`, `change` (`keep`, `create` or `destroy`), `holders`.
    pub items: &'a [PlannedInstance],
}
