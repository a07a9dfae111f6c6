//! `migctl defrag --plan`: a `DefragmentationPlan`.

use super::{Placement, SliceSite, WaitingItem};
use serde::Serialize;

/// The fewest containers to restart for a request to fit.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DefragmentationPlan<'a> {
    /// The alternative that is planned for; the whole request where none can be.
    pub request: String,
    /// `fits` (nothing has to move), `moves`, `impossible`, `limited`, `kept` (earlier requests wait for the room), or
    /// `unknown`: it takes too long to find out.
    pub verdict: &'static str,
    /// The reason of the verdict, in words.
    pub why: String,
    /// The profile of the first slice; null without a plan.
    pub profile: Option<String>,
    /// The UUID of the first slice's GPU; null without a plan.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: Option<String>,
    /// The index of the first slice's GPU in NVML; null without a plan.
    pub gpu_index: Option<u32>,
    /// The memory slices of the first slice; null without a plan.
    pub mig_placement: Option<Placement>,
    /// All slices of the request; empty without a plan.
    pub slices: Vec<SliceSite>,
    /// The containers to restart: stop all, start the request's, then start these in this order.
    pub restarts: Vec<Restart>,
    /// The creates that wait already, in the order in which they are served.
    pub ahead: Vec<WaitingItem<'a>>,
    /// The answer to each alternative of the request.
    pub alternatives: &'a [DefragAlternative],
}

/// A container that has to be restarted, and the place of its slice afterwards.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// The lease's id.
    pub lease: String,
    /// The container's id.
    pub container: String,
    /// The container's name in its pod; null where the engine does not say it.
    pub container_name: Option<String>,
    /// The Kubernetes pod's name; null outside Kubernetes.
    pub pod: Option<String>,
    /// The Kubernetes namespace; null outside Kubernetes.
    pub namespace: Option<String>,
    /// The MIG profile.
    pub profile: String,
    /// The index of its GPU now.
    #[serde(rename = "fromGPUIndex")]
    pub from_gpu: u32,
    /// The memory slices that it has now.
    pub from_placement: Placement,
    /// The index of its GPU afterwards.
    #[serde(rename = "toGPUIndex")]
    pub to_gpu: u32,
    /// The memory slices that it has afterwards.
    pub to_placement: Placement,
    /// The name for the table.
    #[serde(skip)]
    pub name: String,
}

/// The answer to one alternative.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DefragAlternative {
    /// The alternative: `3g.40gb`, `20Gi`, `1g.10gb*2`.
    pub request: String,
    /// As in the plan.
    pub verdict: &'static str,
    /// The reason of the verdict, in words.
    pub why: String,
    /// The number of containers to restart; null where restarts would not help.
    pub restarts: Option<usize>,
}
