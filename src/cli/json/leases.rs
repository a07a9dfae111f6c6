//! `migctl list` and `migctl release`: a `LeaseList`.

use super::Placement;
use serde::Serialize;
use std::path::Path;

/// The leases, and the creates that wait for room.
#[derive(Serialize)]
pub struct LeaseList<'a> {
    /// All leases; for `release` those that it released, as they were.
    pub items: Vec<LeaseItem<'a>>,
    /// The creates that wait, in the order in which they are served.
    pub waiting: Vec<WaitingItem<'a>>,
}

/// A lease, one slice or GPU of one container; or an instance without a lease.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseItem<'a> {
    /// The id of the lease, or of an instance without one: 32 hexadecimal digits.
    pub id: &'a str,
    /// The kind of the portion: `slice`, `share`, `seat` for a share of a slice, or `gpu` for a whole GPU.
    pub kind: &'static str,
    /// `promised` for a place that a claim of Kubernetes gets, `creating`, `ready`, `releasing`, `quarantined`,
    /// `idle`, or `layout` for an instance of a layout without a lease.
    pub state: &'static str,
    /// The container's id as the engine gave it; empty for an idle slice and for a claim.
    pub container: &'a str,
    /// The claim of Kubernetes that holds the slice; null for a container.
    pub claim: Option<ClaimItem<'a>>,
    /// The container's name in its pod; null where the engine does not say it.
    pub container_name: Option<&'a str>,
    /// The Kubernetes pod's name; null outside Kubernetes. For a claim the first of its pods.
    pub pod: Option<&'a str>,
    /// The Kubernetes namespace; null outside Kubernetes.
    pub namespace: Option<&'a str>,
    /// The Kubernetes pod's UID; null outside Kubernetes.
    #[serde(rename = "podUID")]
    pub pod_uid: Option<&'a str>,
    /// The absolute path of the OCI bundle; empty for an idle slice.
    pub bundle: &'a Path,
    /// The path of the low-level runtime.
    pub runtime: &'a Path,
    /// The low-level runtime's `--root`.
    pub runtime_root: &'a Path,
    /// The request: a profile, an amount of memory, a share as `share of 8Gi`, or whole GPUs as `1 GPU`.
    pub request: &'a str,
    /// The MIG profile: `1g.10gb`; `share` or `gpu` without one.
    pub profile: &'a str,
    /// The memory in bytes of a share or seat, or that a whole GPU gives out; null for a slice.
    pub memory_bytes: Option<u64>,
    /// The memory in bytes that a share, a seat or a whole GPU books; null for a slice.
    pub booked_bytes: Option<u64>,
    /// The memory in bytes that the processes of a share's container use; null for others, and where it is not known.
    pub used_bytes: Option<u64>,
    /// The part of `usedBytes` above the share; null like that.
    pub over_bytes: Option<u64>,
    /// The processes of a share's container that compute on its GPU and are no MPS clients, by their pids on the host: they
    /// have no memory limit. Null at other levels than `mps`, and where that is not known.
    pub around: Option<&'a [u32]>,
    /// The memory limit of a share's MPS server, or of its cgroup in the driver, in whole GiB, where it is not that of the share; 0 for none, or for less than
    /// 1 GiB. Null where it is unchanged, and where that is not known.
    pub limit_changed: Option<u64>,
    /// The level at which the memory limit holds: `mig`, `driver`, `mps`, or `none`: nothing limits the container. Null
    /// for a whole GPU.
    pub enforcement: Option<&'static str>,
    /// The MPS daemon of a share at `mps`; null for others.
    pub daemon: Option<DaemonItem>,
    /// The GPU's UUID: `GPU-…`.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: &'a str,
    /// The GPU's index in NVML, counted from 0.
    pub gpu_index: u32,
    /// The MIG device's UUID: `MIG-…`; null until the driver has made it.
    #[serde(rename = "migUUID")]
    pub mig_uuid: Option<&'a str>,
    /// The GPU instance's id on its GPU; null until the driver has made it.
    #[serde(rename = "gpuInstanceID")]
    pub gpu_instance: Option<u32>,
    /// The compute instance's id in the GPU instance; null until the driver has made it.
    #[serde(rename = "computeInstanceID")]
    pub compute_instance: Option<u32>,
    /// The memory slices that the GPU instance takes; start and size are 0 for a share or a whole GPU.
    pub mig_placement: Placement,
    /// The time of the create: RFC 3339, UTC.
    pub created: &'a str,
    /// The pid of the container's init in the pid namespace of the create; null until the container runs.
    pub init_pid: Option<i32>,
    /// The driver's reason why the last release failed; null where none failed.
    pub error: Option<&'a str>,
    /// The number of failed releases.
    pub attempts: u32,
    /// The processes that had the slice open at the last failed release, as `PID NAME`.
    pub held_by: &'a [String],
    /// The time of the next release by itself: RFC 3339, UTC; null where none is planned.
    pub next_attempt: Option<&'a str>,
    /// The time since which an idle slice has no container: RFC 3339, UTC; null for others.
    pub idle_since: Option<&'a str>,
    /// Whether an administrator made the instance. It stays when the lease goes.
    pub adopted: bool,
    /// The configuration of the layout to which the instance belongs: then it stays when the lease goes. Before and after
    /// that, the one whose apply makes or destroys the instance.
    pub layout: Option<&'a str>,
    /// The pod whose containers share the slice; null where it is not shared.
    pub shared_in: Option<&'a str>,
}

/// A ResourceClaim of Kubernetes, with one of its allocated devices.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimItem<'a> {
    /// The UID of the claim.
    pub uid: &'a str,
    /// The namespace of the claim.
    pub namespace: &'a str,
    /// The name of the claim.
    pub name: &'a str,
    /// The request of the claim that the device serves: `slice`, or `slice/alternative`.
    pub request: &'a str,
    /// The pool of the device.
    pub pool: &'a str,
    /// The name of the device. The place on record counts, since a promise may move.
    pub device: &'a str,
    /// The pods for which the claim is reserved.
    pub pods: Vec<ClaimPodItem<'a>>,
}

/// A pod for which a claim is reserved.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPodItem<'a> {
    /// The UID of the pod.
    pub uid: &'a str,
    /// The name of the pod, in the namespace of the claim.
    pub name: &'a str,
}

/// The MPS daemon of a share.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonItem {
    /// The pid of the control program in the pid namespace of the create; null until it is on record.
    pub pid: Option<i32>,
    /// Whether it lives; without it, new processes of the container have no memory limit. Null where that is not known.
    pub alive: Option<bool>,
    /// The number of restarts.
    pub restarts: u32,
}

/// A create that waits for room.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingItem<'a> {
    /// The place in the order of arrival: smaller came earlier.
    pub number: u64,
    /// The container's id; null where the ticket cannot be read, like all that follows.
    pub container: Option<&'a str>,
    /// The request.
    pub request: Option<&'a str>,
    /// The time of arrival: RFC 3339, UTC.
    pub since: Option<&'a str>,
    /// The create's pid: ending it ends the wait.
    pub pid: Option<u32>,
}
