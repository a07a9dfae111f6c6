//! `migctl assert`: a `LayoutAssertion`; `apply` and `restore`: a `LayoutPlan`.

use super::Placement;
use serde::Serialize;

/// A configuration against the state of the machine.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LayoutAssertion {
    /// The name of the configuration.
    pub configuration: String,
    /// The part that was compared: `file` alone, `modes`, or `devices` (modes and instances).
    pub checked: &'static str,
    /// Whether that part is as the configuration says; null where only the file was read.
    pub applied: Option<bool>,
    /// Each GPU; empty where only the file was read.
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

/// The changes of an apply or a restore.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LayoutPlan<'a> {
    /// The name of the configuration; `checkpoint` for a restore.
    pub configuration: &'a str,
    /// Whether the plan was only to be printed.
    pub dry_run: bool,
    /// Whether the changes are made; with `--partial` those on the GPUs that allow them.
    pub applied: bool,
    /// The leases and processes that have to end first, and the GPUs that cannot have the layout, in words; null where
    /// nothing blocks the plan.
    pub error: Option<String>,
    /// The GPUs whose MIG mode changes.
    pub modes: Vec<PlannedModeItem<'a>>,
    /// Every instance on the GPUs that the configuration names, and the new ones.
    pub items: Vec<PlannedItem<'a>>,
}

/// A GPU whose MIG mode changes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedModeItem<'a> {
    /// The GPU's index in NVML.
    #[serde(rename = "gpuIndex")]
    pub gpu_index: u32,
    /// The GPU's UUID.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: &'a str,
    /// Whether MIG is on after the change.
    pub mig_enabled: bool,
    /// The leases and processes on the GPU as a whole.
    pub holders: &'a [String],
}

/// An instance that stays, goes or comes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedItem<'a> {
    /// The GPU's index in NVML.
    #[serde(rename = "gpuIndex")]
    pub gpu_index: u32,
    /// The GPU's UUID.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: &'a str,
    /// The memory slices.
    pub mig_placement: Placement,
    /// The name of the profile.
    pub profile: &'a str,
    /// The compute slices of each compute instance, after the change.
    pub compute_slices: &'a [u32],
    /// `keep`, `create` or `destroy`.
    pub change: &'static str,
    /// The leases and processes that hold the instance.
    pub holders: &'a [String],
}
