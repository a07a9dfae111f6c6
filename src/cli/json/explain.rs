//! `migctl explain`: an `Explanation`.

use super::WaitingItem;
use runmig_lease::model::Placement;
use runmig_lease::placement::Site;
use serde::Serialize;

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
    /// The reason of the verdict, in words.
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
    /// The reason of the state, in words.
    pub why: String,
    /// The number of free memory slices.
    pub free_slices: u32,
    /// The number of memory slices.
    pub total_slices: u32,
    /// The number of memory slices whose instances could not be released.
    pub quarantined_slices: u32,
    /// The places for the profile, the best first; empty unless the state is `fits`.
    pub places: Vec<PlaceItem>,
}

/// A place for the profile on a GPU.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaceItem {
    /// The memory slices.
    pub mig_placement: Placement,
    /// The cost in memory slices, rounded to hundredths; a create takes the least. It can be negative.
    pub cost: f64,
    /// The profiles that have a place on the GPU now and would have none.
    pub closes: Vec<String>,
    /// Whether an idle slice would be handed out.
    pub reuses_idle: bool,
    /// The number of idle slices that would be destroyed.
    pub evicts_idle: usize,
}

/// The answer with MIG on everywhere.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WithMigOn {
    /// Whether the request would fit.
    pub fits: bool,
    /// The reason, in words.
    pub why: String,
    /// The place of each slice; empty where it would not fit.
    pub slices: Vec<Site>,
    /// The command that switches MIG on where those slices would lie; null where it would not fit.
    pub command: Option<String>,
}
