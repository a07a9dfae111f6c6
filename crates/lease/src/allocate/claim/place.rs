//! The place of a claim's device: free, idle, or in use. Pure.

use crate::allocate::admit::Limits;
use crate::allocate::plan::{Plan, Planner};
use crate::allocate::requester::Tried;
use crate::draft::footprint;
use crate::error::{Error, Result};
use crate::inventory::Inventory;
use crate::model::{Gpu, GpuUuid, InstanceId, MigMode, Placement, Profile, Shut};
use crate::placement::{Constraints, Slot};
use crate::policy::{Policy, Subject};
use crate::request::{self, Alternative};
use crate::store::{Claim, Entry, Instance, LeaseState};

/// The place that a device of a ResourceClaim names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPlace {
    /// The UUID of the GPU.
    pub gpu: GpuUuid,
    /// The name of the profile.
    pub profile: String,
    /// The memory slices.
    pub placement: Placement,
}

/// The holder of a place.
#[derive(Debug)]
pub(super) struct Taken {
    /// The holder and its instance, in words.
    pub by: String,
    pub end: End,
}

/// The end of a hold on a place.
#[derive(Debug)]
pub(super) enum End {
    /// Nobody knows when.
    Open,
    /// Soon, by the work of another process. The scheduler gives the place of a claim only to another one whose claim is
    /// gone, so the end of a claim is near too.
    Near,
    /// Now, if a release succeeds.
    Due(Entry),
    /// By this step of an administrator, or once the GPU is well.
    Healed(String),
}

/// Plans the slice of a claim's device. If a local slice has its place, that is another place of the profile on the same
/// GPU. The idle slices of the plan go first, and then the place is chosen anew. No limit of the policy and no earlier
/// request counts, since the scheduler has chosen the GPU.
///
/// # Errors
/// The GPU is not there or not in MIG mode, or it does not offer the profile at that place.
pub(super) fn plan(
    inventory: &Inventory,
    claim: &Claim,
    place: &ClaimPlace,
    tried: &Tried,
) -> Result<std::result::Result<Plan, Taken>> {
    let (gpu, profile) = offered(inventory, claim, place)?;
    let mut over = tried.idle_over(inventory);
    over.retain(|idle| footprint(idle).gpu == gpu.uuid);
    if !over.is_empty() {
        let (steps, evict) = (Vec::new(), over);
        return Ok(Ok(Plan { steps, evict }));
    }
    // The driver refused these alone: nothing is known to lie there.
    let is_refused = |at: &Placement| {
        let of_profile = |r: &&Slot| r.gpu == gpu.uuid && r.profile_id == profile.id;
        { tried.refused.iter().filter(of_profile) }.any(|refused| refused.placement == *at)
    };
    let mut free = profile.placements.clone();
    free.retain(|at| !is_refused(at));
    let mut own = free.clone();
    own.retain(|at| *at == place.placement);
    let at = |places: &[Placement]| plan_at(inventory, gpu, profile, places, &tried.idle);
    let plan = at(&own).or_else(|| at(&free));
    Ok(plan.ok_or_else(|| taken(inventory, gpu, place.placement)))
}

/// Plans a slice on a machine that has this GPU alone, with the profile at these places alone. `stay`: idle slices that
/// could not be destroyed.
fn plan_at(
    inventory: &Inventory,
    gpu: &Gpu,
    profile: &Profile,
    places: &[Placement],
    stay: &[InstanceId],
) -> Option<Plan> {
    let mut snapshot = inventory.snapshot.clone();
    snapshot.gpus.retain(|one| one.uuid == gpu.uuid);
    let profiles = snapshot.gpus.iter_mut().flat_map(|gpu| &mut gpu.profiles);
    for its in profiles.filter(|one| one.id == profile.id) {
        its.placements = places.to_vec();
    }
    let asked = Alternative::one(request::Slice::Profile(profile.name.parse().ok()?));
    let unlimited = Policy::default();
    let planner = Planner {
        inventory: &inventory.on(snapshot),
        wanted: &Constraints::default(),
        limits: &Limits::new(&unlimited, Subject::default(), Vec::new()),
        tried: &Tried {
            idle: stay.to_vec(),
            ..Tried::default()
        },
        adopts: false,
    };
    planner.plan_one(&asked).ok()
}

fn offered<'a>(
    inventory: &'a Inventory,
    claim: &Claim,
    place: &ClaimPlace,
) -> Result<(&'a Gpu, &'a Profile)> {
    let other = "delete the pod, so that the scheduler chooses another device";
    let cannot = |why: String, hint: String| {
        let why = format!("cannot make the slice of {claim}: {why}");
        Err(Error::new(why).hint(hint))
    };
    let snapshot = &inventory.snapshot;
    let Some(gpu) = snapshot.gpu(&place.gpu) else {
        let unread = snapshot.unreadable.iter();
        let unread: String = unread.map(|(n, why)| format!("; GPU {n}: {why}")).collect();
        let why = format!("GPU {} is not there{unread}", place.gpu);
        return cannot(why, other.to_owned());
    };
    let index = gpu.index;
    if gpu.mig != MigMode::Enabled {
        let why = format!("GPU {index} is not in MIG mode");
        let hint = format!("switch MIG mode on: nvidia-smi -i {index} -mig 1");
        return cannot(why, hint);
    }
    if gpu.ends_mig() {
        let why = format!("the next reset of GPU {index} switches MIG off");
        let hint = format!("keep MIG on: nvidia-smi -i {index} -mig 1; or {other}");
        return cannot(why, hint);
    }
    if let Some(Shut { why, remedy }) = gpu.shut() {
        let why = format!("GPU {index} gives nothing new: {why}");
        return cannot(why, format!("{remedy}, or {other}"));
    }
    let (name, at) = (&place.profile, place.placement);
    let profile = gpu.profiles.iter().find(|p| p.name == *name);
    match profile.filter(|p| p.placements.contains(&at)) {
        Some(profile) => Ok((gpu, profile)),
        None => cannot(
            format!("GPU {index} has no {name} at {at}"),
            other.to_owned(),
        ),
    }
}

/// Returns what has taken a device's own place, as an error names it.
pub(super) fn holder(inventory: &Inventory, place: &ClaimPlace, refused: &[Slot]) -> String {
    if (refused.iter()).any(|slot| slot.is_at(&place.gpu, place.placement)) {
        return "the GPU driver refused it".to_owned();
    }
    match inventory.snapshot.gpu(&place.gpu) {
        Some(gpu) => taken(inventory, gpu, place.placement).by,
        None => "its GPU is gone".to_owned(),
    }
}

/// Returns the holder of the memory slices of a place.
fn taken(inventory: &Inventory, gpu: &Gpu, at: Placement) -> Taken {
    let overlaps = |i: &Instance| {
        let slot = footprint(i);
        slot.gpu == gpu.uuid && slot.placement.overlaps(at)
    };
    if let Some(held) = inventory.leases.iter().find(|h| overlaps(&h.instance)) {
        let (lease, instance) = (&held.lease, &held.instance);
        let due = || End::Due(Entry::Held(held.clone()));
        let end = if lease.state == LeaseState::Releasing || instance.is_ending() {
            due()
        } else if lease.claim().is_some() {
            End::Near
        } else if lease.is_of_claim() {
            // The container of a claim that has ended.
            due()
        } else {
            End::Open
        };
        let by = format!("{} has {}", lease.holder.title(), instance.resource);
        return Taken { by, end };
    }
    let mut unleased = inventory.unleased.iter().filter(|i| overlaps(i));
    if let Some(instance) = unleased.next() {
        let (id, on) = (&instance.id, &instance.resource);
        let due = || End::Due(Entry::Unleased(instance.clone()));
        let (by, end) = match &instance.layout {
            Some(layout) if instance.is_of_layout() => {
                (format!("{on} belongs to layout {layout}"), End::Open)
            }
            _ if instance.idle_since().is_some() => (
                format!("idle {on} cannot be destroyed"),
                End::Healed(format!("see migctl list, then migctl release {id}")),
            ),
            Some(layout) => (format!("the apply of layout {layout} works on {on}"), due()),
            None => (format!("{on} is being released"), due()),
        };
        return Taken { by, end };
    }
    let foreign = gpu.instances.iter().find(|i| i.placement.overlaps(at));
    let (foreign, gpu, end) = (foreign.map(|i| i.id), gpu.index, End::Open);
    let by = match foreign {
        Some(id) => format!("GPU instance {id} on GPU {gpu}, which runmig did not make"),
        None => format!("the other slices leave GPU {gpu} no compute slices or engines"),
    };
    Taken { by, end }
}

/// An event in the work on one device of a claim that its user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimNews {
    /// The promise is at another place of the profile than the device names.
    Moved {
        /// The new place.
        to: Placement,
        /// The holder of the device's place, in words.
        by: String,
    },
    /// The work waits for an obstacle that passes by itself.
    Waits {
        /// The obstacle, in words.
        by: String,
    },
}

/// A listener to news. It must not block.
pub(crate) type Hear<'a> = &'a dyn Fn(ClaimNews);
