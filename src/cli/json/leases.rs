//! `migctl list` and `migctl release`: a `LeaseList`.

use super::InstanceItem;
use runmig_lease::LeaseView;
use serde::Serialize;

/// The leases, and the creates that wait for room.
#[derive(Serialize)]
pub struct LeaseList<'a> {
    /// All leases; for `release` those that it released, as they were.
    pub items: Vec<LeaseView>,
    /// The creates that wait, in the order in which they are served.
    pub waiting: Vec<WaitingItem<'a>>,
    /// The GPU instances that runmig did not make; only with `--all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Vec<ForeignItem>>,
}

/// A GPU instance that runmig did not make.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignItem {
    /// The UUID of its GPU.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: String,
    /// The driver's index of its GPU.
    #[serde(rename = "gpuIndex")]
    pub gpu_index: u32,
    /// The instance.
    #[serde(flatten)]
    pub instance: InstanceItem,
}

/// A create that waits for room.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingItem<'a> {
    /// The place in the order of arrival: smaller came earlier.
    pub number: u64,
    /// The container's id.
    pub container: &'a str,
    /// The name that people know it by; null without one.
    pub container_name: Option<&'a str>,
    /// The request.
    pub request: &'a str,
    /// The time of arrival: RFC 3339, UTC.
    pub since: &'a str,
    /// The create's pid: ending it ends the wait.
    pub pid: u32,
}
