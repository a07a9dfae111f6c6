//! All types of the JSON that `migctl -o json` prints. The verbs fill them; nothing else prints JSON.

use runmig_lease::finding::Finding;
use runmig_lease::model::{Gpu, GpuInstance, Placement, Shut};
use runmig_lease::placement::{Site, SlotCost};
use runmig_lease::{LeaseView, PlannedInstance, PlannedMode};
use serde::Serialize;
use std::path::Path;

/// The value of `apiVersion`.
const API_VERSION: &str = "runmig.dev/v1";

/// One object in Kubernetes' form: `apiVersion`, `kind`, and the fields of the kind.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a, T> {
    /// `runmig.dev/v1`.
    api_version: &'static str,
    /// Names the fields that follow.
    kind: &'static str,
    #[serde(flatten)]
    fields: &'a T,
}

/// The fields of a list that has nothing but items.
#[derive(Serialize)]
pub struct Items<'a, T> {
    /// All items, in the order of the table.
    pub items: &'a [T],
}

fn object<'a, T>(kind: &'static str, fields: &'a T) -> Object<'a, T> {
    Object {
        api_version: API_VERSION,
        kind,
        fields,
    }
}

/// Returns the text of an object.
pub fn text(kind: &'static str, fields: &impl Serialize) -> String {
    serde_json::to_string_pretty(&object(kind, fields)).expect("only strings are keys")
}

/// Returns the text of an object on one line.
pub fn line(kind: &'static str, fields: &impl Serialize) -> String {
    serde_json::to_string(&object(kind, fields)).expect("only strings are keys")
}

// `migctl gpus`: a `GpuList`.

/// A GPU with its MIG mode, its profiles and what lies on it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuItem<'a> {
    /// The index in NVML, counted from 0.
    pub index: u32,
    /// The minor number of `/dev/nvidiaN`.
    pub minor: u32,
    /// The UUID: `GPU-…`.
    pub uuid: &'a str,
    /// The product name.
    pub name: &'a str,
    /// The PCI address as NVML writes it: `00000000:07:00.0`.
    #[serde(rename = "pciBusID")]
    pub pci_bus_id: &'a str,
    /// `unsupported`, `disabled` or `enabled`.
    pub mig_mode: &'static str,
    /// The MIG mode after the next reset of the GPU; null where it is the same.
    pub mig_mode_pending: Option<&'static str>,
    /// The profiles that the GPU offers now; empty with MIG off.
    pub profiles: Vec<ProfileItem<'a>>,
    /// The profiles that the GPU would offer with MIG on; empty where MIG is on.
    #[serde(rename = "profilesWithMIGOn")]
    pub profiles_with_mig_on: Vec<ProfileItem<'a>>,
    /// Every GPU instance that the driver lists.
    pub instances: Vec<InstanceItem>,
    /// The number of free memory slices.
    pub free_slices: u32,
    /// The loss by fragmentation in percent, 0 to 100; null with MIG off, or where it takes too long to find out.
    pub fragmentation_percent: Option<u32>,
    /// The use: `mig`, `free`, `exclusive`, `shared`, `foreign`, `unusable` or `unknown`.
    pub r#use: &'static str,
    /// What uses it: the holder, the process, or the reason.
    pub use_reason: String,
    /// The memory in bytes that the GPU gives out; null where it is not known, and in MIG mode.
    pub memory_bytes: Option<u64>,
    /// The memory in bytes that shares have booked.
    pub booked_bytes: u64,
    /// The memory in bytes of processes without a lease; null where it is not known, and in MIG mode.
    pub foreign_bytes: Option<u64>,
    /// Why the GPU gives nothing new; null where it does.
    pub closed: Option<ClosedItem>,
    /// The driver's first failure about this GPU; null where it answered all.
    pub error: Option<String>,
    /// The memory slices, from slice 0 on.
    pub slices: Vec<MemorySlice>,
}

/// Why a GPU gives nothing new.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosedItem {
    /// `cordoned`, and the driver's signs: `lost`, `row-remap-failed`, `row-remap-pending`, `page-retirement-pending`,
    /// `uncorrectable-errors`, `recovery-action`, `fabric-down`.
    pub reasons: Vec<String>,
    /// `why`, a sentence with all of them, and `remedy`, the administrator's next step.
    #[serde(flatten)]
    pub shut: Shut,
}

/// One memory slice of a GPU.
#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
pub struct MemorySlice {
    /// `free`, `leased`, `idle`, `quarantined`, `layout`, `foreign`, or `unknown` without the ledger.
    pub state: &'static str,
    /// The profile of the instance on it; null where the slice is free.
    pub profile: Option<String>,
    /// The ids of the leases on it; several where a pod's containers share the instance.
    pub leases: Vec<String>,
}

/// A MIG profile of a GPU.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileItem<'a> {
    /// The name: `1g.10gb`.
    pub name: &'a str,
    /// The GPU instance profile's id in NVML.
    #[serde(rename = "profileID")]
    pub id: u32,
    /// The number of instances that the driver would still make; null where it does not say.
    pub instances_free: Option<u32>,
    /// The largest number of instances on an empty GPU.
    pub instances_total: u32,
    /// The memory in bytes.
    pub memory_bytes: u64,
    /// Whether the profile supports peer-to-peer access.
    pub p2p: bool,
    /// The number of multiprocessors (SM).
    pub multiprocessors: u32,
    /// The number of video decoders (NVDEC).
    pub decoders: u32,
    /// The number of video encoders (NVENC).
    pub encoders: u32,
    /// The number of copy engines (CE).
    pub copy_engines: u32,
    /// The number of JPEG decoders.
    pub jpegs: u32,
    /// The number of optical flow accelerators (OFA).
    pub ofas: u32,
}

/// A GPU instance of the driver.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceItem {
    /// The id on its GPU.
    #[serde(rename = "gpuInstanceID")]
    pub id: u32,
    /// The profile's name, or its id where the driver offers no such profile.
    pub profile: String,
    /// The memory slices that it takes.
    pub mig_placement: Placement,
}

impl InstanceItem {
    pub fn new(gpu: &Gpu, instance: &GpuInstance) -> InstanceItem {
        let id = instance.profile_id;
        InstanceItem {
            id: instance.id,
            profile: (gpu.profile(id)).map_or_else(|| id.to_string(), |p| p.name.clone()),
            mig_placement: instance.placement,
        }
    }
}

// `migctl list` and `migctl release`: a `LeaseList`.

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

// `migctl explain`: an `Explanation`.

/// A create's answer to a request, if it came now.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation<'a> {
    /// The alternatives that `[policy]` allows, as `runmig.dev/slice` has them.
    pub request: String,
    /// Whether one of them fits.
    pub fits: bool,
    /// The line of the create's error; null where it fits.
    pub error: Option<String>,
    /// The creates that wait already, in the order in which they are served.
    pub ahead: Vec<WaitingItem<'a>>,
    /// The alternatives, up to the first that fits.
    pub alternatives: Vec<Alternative>,
}

/// The answer to one alternative.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Alternative {
    /// The alternative: `3g.40gb`, `20Gi`, `1g.10gb*2`.
    pub request: String,
    /// `fits`, `full`, `fragmented`, `queued` (earlier requests wait for the room), `limited`, or `unsatisfiable`:
    /// no wait helps.
    pub verdict: &'static str,
    /// Why this verdict.
    pub why: String,
    /// A step that helps; null where it fits or none is known.
    pub hint: Option<String>,
    /// The place of each slice, where the restarts make room their places after these; empty where it does not fit.
    pub slices: Vec<Site>,
    /// The GPUs in the order in which a create would take them.
    pub gpus: Vec<GpuAnswer>,
    /// The fewest containers to restart where the verdict is `fragmented`: stop all, start the request's, then start these in
    /// this order. Else empty.
    pub restarts: Vec<Restart>,
    /// The answer with MIG on where it is off; null where the request fits now, or the answer is the same.
    #[serde(rename = "withMIGOn")]
    pub with_mig_on: Option<WithMigOn>,
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

/// The answer of one GPU.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuAnswer {
    /// The index in NVML, counted from 0.
    pub index: u32,
    /// The UUID.
    pub uuid: String,
    /// The profile that the request means on this GPU, or of the slice with seats; null where it has none.
    pub profile: Option<String>,
    /// For a request of a seat: the memory slices of the slice with seats; null for other requests.
    pub mig_placement: Option<Placement>,
    /// For a request of a seat: the number of seats in the slice; null for other requests.
    pub seats: Option<usize>,
    /// The number of shares of the GPU or slice, for the table.
    #[serde(skip)]
    pub shares: usize,
    /// `fits`, `full`, `queued`, `noPlace`, `usedUp`, `noProfile`, `migOff`, `migPending`, `noMig` or `excluded`. For a request of
    /// a share or of whole GPUs: `fits`, `full`, `noPlace`, `queued`, `excluded`, or the GPU's use as in `migctl gpus`.
    pub state: &'static str,
    /// The memory in bytes that the GPU gives out to shares or whole; null for a request of slices, and where it is not known.
    pub memory_bytes: Option<u64>,
    /// The memory in bytes that is left for a share; null for other requests.
    pub free_bytes: Option<u64>,
    /// The level that a share would have there: `driver`, `mps` or `none`; null for other requests, and without a level.
    pub enforcement: Option<&'static str>,
    /// Why this state.
    pub why: String,
    /// The number of free memory slices.
    pub free_slices: u32,
    /// The number of memory slices.
    pub total_slices: u32,
    /// The number of memory slices whose instances could not be released.
    pub quarantined_slices: u32,
    /// The places for the profile, the best first; empty unless the state is `fits`.
    pub places: Vec<SlotCost>,
}

/// The answer with MIG on everywhere.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WithMigOn {
    /// Whether the request would fit.
    pub fits: bool,
    /// The reason.
    pub why: String,
    /// The place of each slice; empty where it would not fit.
    pub slices: Vec<Site>,
    /// The command that switches MIG on where those slices would lie; null where it would not fit.
    pub command: Option<String>,
}

// `migctl inspect`: a `NodeBooking`.

/// The memory of the node's GPUs, and its booked part.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeBooking<'a> {
    /// The memory in bytes that all GPUs give out, as far as the driver tells.
    pub total_bytes: u64,
    /// The booked memory in bytes.
    pub booked_bytes: u64,
    /// The GPUs.
    pub items: Vec<GpuBookingItem<'a>>,
}

/// The memory of a GPU, and its booked part.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuBookingItem<'a> {
    /// The index in NVML, counted from 0.
    pub index: u32,
    /// The UUID: `GPU-…`.
    pub uuid: &'a str,
    /// The product name.
    pub name: String,
    /// The use, as in `migctl gpus`.
    pub r#use: &'static str,
    /// The memory in bytes that the GPU gives out; null where the driver does not tell.
    pub total_bytes: Option<u64>,
    /// The booked memory in bytes: shares, slices, or all for a whole GPU.
    pub booked_bytes: u64,
    /// The leases on the GPU.
    pub leases: Vec<BookingItem<'a>>,
}

/// The memory that a lease books.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BookingItem<'a> {
    /// The id of the lease.
    pub id: &'a str,
    /// The container's id as the engine gave it.
    pub container: &'a str,
    /// The booked memory in bytes. Containers of a pod that share a slice or GPU show all of it each.
    pub booked_bytes: u64,
}

// `migctl gc`: a `CollectionList`.

/// A lease that `migctl gc` looked at.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CollectionItem<'a> {
    /// The id of the lease, or of an instance without one.
    pub id: &'a str,
    /// The container's id; empty for an idle slice and for a claim.
    pub container: &'a str,
    /// The claim of Kubernetes that holds the slice, as `NAMESPACE/NAME`; null for a container.
    pub claim: Option<String>,
    /// The holder for people.
    #[serde(skip)]
    pub holder: String,
    /// The MIG profile; `gpu` for a whole GPU.
    pub profile: &'a str,
    /// The GPU's UUID.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: &'a str,
    /// `kept`, `released` or `failed`. A dry run says the outcome that a run would have.
    pub outcome: &'static str,
    /// Why this outcome.
    pub why: String,
}

// `migctl dcgm reload`: a `ReloadList`.

/// A process of dcgm-exporter.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadItem {
    /// The process id.
    pub pid: i32,
    /// `reloads`; `starts` for a process that lists the instances at its start anyway; `ended` or `failed`.
    pub outcome: &'static str,
    /// Why this outcome; null where there is nothing to tell.
    pub why: Option<&'static str>,
}

// `migctl assert`: a `LayoutAssertion`; `apply`: a `LayoutPlan`.

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
    /// The difference; null where there is none.
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
    /// The leases and processes that have to end first; null where nothing blocks the plan.
    pub error: Option<String>,
    /// The GPUs whose MIG mode changes: `gpuIndex`, `gpuUUID`, `migEnabled`, `holders`.
    pub modes: &'a [PlannedMode],
    /// Every instance on the GPUs that the configuration names, and the new ones: `gpuIndex`, `gpuUUID`, `migPlacement`,
    /// `profile`, `computeSlices`, `change` (`keep`, `create` or `destroy`), `holders`.
    pub items: &'a [PlannedInstance],
}

// `migctl doctor`: a `Diagnosis`.

/// A finding of a check.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiagnosisItem<'a> {
    /// The check as `id`, `status`, `text` and `repair`. Several items have the same id where a check looks at several
    /// things; `repair` is null where all is well.
    #[serde(flatten)]
    pub finding: &'a Finding,
    /// The group of the check.
    pub group: &'a str,
}

// `migctl configure`: a `ChangeList`.

/// A file of an engine.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeItem<'a> {
    /// The engine and its version: `containerd 1.6.20`.
    pub engine: &'a str,
    /// The file's path as the engine names it, without `--root`.
    pub path: &'a Path,
    /// `created`, `changed`, `removed` or `unchanged`. A dry run says the change that a run would make.
    pub change: &'static str,
    /// The command that makes the engine read the file; null where none is needed.
    pub restart: Option<&'static str>,
}
