//! The verdict of each GPU on a request.

use super::choose::{Candidate, Rank, SLICE, candidates};
use super::gpu_obstacle::GpuObstacle;
use super::occupancy::{Exhausted, Occupancy, Slot};
use super::plan::{Constraints, MAX_STEPS};
use super::several::Packer;
use crate::model::{Gpu, MigMode, Placement, Profile, Snapshot};
use crate::request::Slice;
use serde::Serialize;

/// The answer of one GPU to one request.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuReport<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// The profile that the request stands for on this GPU, if the GPU offers one.
    pub profile: Option<&'a Profile>,
    /// Free memory slices. Slices of idle instances count as free.
    pub free_slices: u32,
    /// All memory slices of the GPU.
    pub total_slices: u32,
    /// Memory slices of instances that could not be released.
    pub quarantined: u32,
    /// The answer.
    pub verdict: Verdict,
}

/// Says whether a GPU has a slot for a request, and if not, why.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The free slots, the best first.
    Fits(Vec<SlotCost>),
    /// Fewer memory slices are free than the profile takes.
    Full,
    /// The free slots are reserved for earlier requests.
    Queued,
    /// Enough memory slices are free, but no slot of the profile is.
    NoSlot,
    /// The GPU reached another limit.
    Exhausted(Exhausted),
    /// The GPU offers no profile for the request, or rules deny it.
    NoProfile,
    /// MIG is off.
    MigOff,
    /// The next reset switches MIG on.
    MigPending,
    /// The GPU does not support MIG.
    NoMig,
    /// The GPU is left out.
    Excluded(GpuObstacle),
}

/// A free slot and its cost, as `migctl explain -o json` shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotCost {
    /// The memory slices of the slot.
    #[serde(rename = "migPlacement")]
    pub placement: Placement,
    /// In memory slices that one profile loses (docs/packing.md), rounded to hundredths; a create takes the least. It can be
    /// negative.
    pub cost: f64,
    /// Profiles that have a free slot on the GPU now, and would have none afterwards.
    pub closes: Vec<String>,
    /// Whether runmig would hand out an idle slice as it is.
    pub reuses_idle: bool,
    /// The number of idle slices that runmig would destroy.
    pub evicts_idle: usize,
    #[serde(skip)]
    rank: Rank,
}

/// Returns the verdict of every GPU, in the order of preference.
pub fn explain<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Slot],
    request: &Slice,
    constraints: &Constraints<'_>,
) -> Vec<GpuReport<'a>> {
    let look = |gpu: &'a Gpu| on_gpu(snapshot, gpu, reserved, request, constraints);
    let mut all: Vec<GpuReport<'a>> = snapshot.gpus.iter().map(look).collect();
    all.sort_by_key(|on| match &on.verdict {
        Verdict::Fits(places) => (0, Some(places[0].rank), on.gpu.index),
        _ => (1, None, on.gpu.index),
    });
    all
}

fn on_gpu<'a>(
    snapshot: &Snapshot,
    gpu: &'a Gpu,
    reserved: &[Slot],
    request: &Slice,
    constraints: &Constraints<'_>,
) -> GpuReport<'a> {
    let occupancy = constraints.occupancy(gpu, reserved);
    let profile = constraints.profile_on(gpu, request);
    let verdict = match (gpu.mig, gpu.mig_pending, profile) {
        (MigMode::Unsupported, ..) => Verdict::NoMig,
        (MigMode::Disabled, Some(MigMode::Enabled), _) => Verdict::MigPending,
        (MigMode::Disabled, ..) => Verdict::MigOff,
        (MigMode::Enabled, _, found) => match (constraints.exclusion(gpu), found) {
            (Some(why), _) => Verdict::Excluded(why),
            (None, None) => Verdict::NoProfile,
            (None, Some(profile)) => look(snapshot, &occupancy, profile, reserved, constraints),
        },
    };
    GpuReport {
        gpu,
        profile,
        free_slices: occupancy.free_slices(),
        total_slices: occupancy.total_slices(),
        quarantined: constraints.quarantined_on(gpu),
        verdict,
    }
}

fn look(
    snapshot: &Snapshot,
    occupancy: &Occupancy<'_>,
    profile: &Profile,
    reserved: &[Slot],
    constraints: &Constraints<'_>,
) -> Verdict {
    let fitting = [(occupancy.gpu, profile)];
    let (candidates, has_reserved) = candidates(snapshot, &fitting, reserved, constraints);
    let slot = |one: Candidate<'_>| SlotCost {
        placement: one.decision.placement,
        cost: (one.cost as f64 / SLICE as f64 * 100.0).round() / 100.0,
        closes: closes(occupancy, profile, one.decision.placement),
        reuses_idle: !one.rank.is_made,
        evicts_idle: one.decision.evicts.len(),
        rank: one.rank,
    };
    let mut slots: Vec<SlotCost> = candidates.into_iter().map(slot).collect();
    slots.sort_by_key(|slot| slot.rank);
    match occupancy.exhausted(profile, occupancy.taken()) {
        _ if !slots.is_empty() => Verdict::Fits(slots),
        _ if has_reserved => Verdict::Queued,
        _ if occupancy.free_slices() < profile.memory_slices() => Verdict::Full,
        Some(what) => Verdict::Exhausted(what),
        None => Verdict::NoSlot,
    }
}

fn closes(occupancy: &Occupancy<'_>, profile: &Profile, at: Placement) -> Vec<String> {
    let after = occupancy.with(profile, at);
    let has_place = |occupancy: &Occupancy<'_>, p: &Profile| occupancy.places(p).next().is_some();
    let closed = |p: &&Profile| has_place(occupancy, p) && !has_place(&after, p);
    let closed = occupancy.gpu.profiles.iter().filter(closed);
    closed.map(|p| p.name.clone()).collect()
}

/// Returns how fragmented a GPU is, in per cent. 0 means that its largest free slot is as large as it
/// could be after any move of its occupants; 100 means that only a move frees a slot.
pub fn fragmentation(occupancy: &Occupancy<'_>) -> Option<u32> {
    let mut by_size: Vec<&Profile> = occupancy.gpu.profiles.iter().collect();
    by_size.sort_by_key(|p| std::cmp::Reverse(p.memory_slices()));
    let has_place = |p: &&&Profile| occupancy.places(p).next().is_some();
    let now = by_size.iter().find(has_place);
    let now = now.map_or(0, |p| p.memory_slices());
    let taken = occupancy.taken();
    let names: Vec<String> = taken.map(|l| occupancy.name(l.profile_id)).collect();
    let mut packer = Packer::new(&[Occupancy::empty(occupancy.gpu)], MAX_STEPS);
    let mut could = 0;
    for p in by_size {
        let more = names.iter().map(String::as_str).chain([p.name.as_str()]);
        if packer.holds(more)? {
            could = p.memory_slices();
            break;
        }
    }
    let lost = 100 * could.saturating_sub(now);
    Some(lost.checked_div(could).unwrap_or(0))
}
