//! `migctl assert`: a `LayoutAssertion`.

use serde::Serialize;

/// A configuration against the state of the machine.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
