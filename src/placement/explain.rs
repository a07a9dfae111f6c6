//! Why each GPU will do for a request, or will not.

use super::choose::{Rank, each_candidate};
use super::constraints::Constraints;
use super::occupancy::{Occupancy, Slot};
use super::pack::Packer;
use super::plan::MAX_STEPS;
use super::score;
use crate::model::{Gpu, MigMode, Placement, Profile, Snapshot};
use crate::request::Slice;

/// The answer of one GPU to one request.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuReport<'a> {
    pub gpu: &'a Gpu,
    /// The request's profile there.
    pub profile: Option<&'a Profile>,
    pub free_slices: u32,
    pub total_slices: u32,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The possible places, the best first.
    Fits(Vec<SlotCost>),
    /// Fewer memory slices are free than it takes.
    Full,
    /// There is a place, but those who came before wait for it.
    Kept,
    /// Enough are free, but no place of the profile is.
    NoPlace,
    /// All that there is of something else is in use: "decoders".
    UsedUp(String),
    NoProfile,
    MigOff,
    /// MIG is off until the GPU is reset.
    MigPending,
    NoMig,
    /// By this rule.
    Excluded(String),
}

/// A place, and what taking it costs.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotCost {
    pub placement: Placement,
    /// In memory slices of no more use to one profile (docs/packing.md).
    pub cost: f64,
    /// The profiles that had a place on that GPU and would have none afterwards.
    pub closes: Vec<String>,
    /// An idle slice is handed out as it is.
    pub reuses: bool,
    /// Idle slices that would be destroyed for it.
    pub evicts: usize,
    rank: Rank,
}

/// Every GPU, in the order in which they would be taken.
pub fn explain<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Slot],
    request: &Slice,
    constraints: &Constraints<'_>,
) -> Vec<GpuReport<'a>> {
    let look = |gpu: &'a Gpu| on_gpu((snapshot, gpu), reserved, request, constraints);
    let mut all: Vec<GpuReport<'a>> = snapshot.gpus.iter().map(look).collect();
    all.sort_by_key(|on| match &on.verdict {
        Verdict::Fits(places) => (0, Some(places[0].rank), on.gpu.index),
        _ => (1, None, on.gpu.index),
    });
    all
}

fn on_gpu<'a>(
    (snapshot, gpu): (&Snapshot, &'a Gpu),
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
            (Some(rule), _) => Verdict::Excluded(rule.to_owned()),
            (None, None) => Verdict::NoProfile,
            (None, Some(profile)) => look((snapshot, &occupancy), profile, reserved, constraints),
        },
    };
    GpuReport {
        gpu,
        profile,
        free_slices: occupancy.free_slices(),
        total_slices: occupancy.total_slices(),
        verdict,
    }
}

fn look(
    (snapshot, occupancy): (&Snapshot, &Occupancy<'_>),
    profile: &Profile,
    reserved: &[Slot],
    constraints: &Constraints<'_>,
) -> Verdict {
    let mut places: Vec<SlotCost> = Vec::new();
    let kept = each_candidate(
        snapshot,
        &[(occupancy.gpu, profile)],
        reserved,
        constraints,
        |c| {
            let placement = c.placement;
            places.push(SlotCost {
                placement,
                cost: c.cost as f64 / score::SLICE as f64,
                closes: closes(occupancy, profile, placement),
                reuses: occupancy.is_idle(profile, placement),
                evicts: occupancy.evictions(profile, placement).len(),
                rank: c.rank,
            });
        },
    );
    places.sort_by_key(|p| p.rank);
    if !places.is_empty() {
        return Verdict::Fits(places);
    }
    if kept {
        return Verdict::Kept;
    }
    if occupancy.free_slices() < profile.memory_slices() {
        return Verdict::Full;
    }
    match occupancy.lacks(profile, occupancy.taken()) {
        Some(lack) => Verdict::UsedUp(lack.of(profile)),
        None => Verdict::NoPlace,
    }
}

fn closes(occupancy: &Occupancy<'_>, profile: &Profile, at: Placement) -> Vec<String> {
    let after = occupancy.with(profile, at);
    let has_place = |occupancy: &Occupancy<'_>, p: &Profile| occupancy.places(p).next().is_some();
    let closed = |p: &&Profile| has_place(occupancy, p) && !has_place(&after, p);
    let closed = occupancy.gpu.profiles.iter().filter(closed);
    closed.map(|p| p.name.clone()).collect()
}

/// How fragmented a GPU is, in per cent: what of the largest slice that its free memory could be,
/// did all on it lie as well as it can, is lost to where it lies. 0: nothing is.
pub fn fragmentation(occupancy: &Occupancy<'_>) -> Option<u32> {
    let largest = |fits: &mut dyn FnMut(&Profile) -> Option<bool>| {
        let mut by_size: Vec<&Profile> = occupancy.gpu.profiles.iter().collect();
        by_size.sort_by_key(|p| std::cmp::Reverse(p.memory_slices()));
        for profile in by_size {
            if fits(profile)? {
                return Some(profile.memory_slices());
            }
        }
        Some(0)
    };
    let now = largest(&mut |p| Some(occupancy.places(p).next().is_some()))?;
    let names: Vec<String> = occupancy
        .taken()
        .map(|l| occupancy.name(l.profile_id))
        .collect();
    let mut packer = Packer::new(&[Occupancy::empty(occupancy.gpu)], MAX_STEPS);
    let could = largest(&mut |p| {
        let more = names.iter().map(String::as_str).chain([p.name.as_str()]);
        packer.holds(more)
    })?;
    Some(
        (100 * could.saturating_sub(now))
            .checked_div(could)
            .unwrap_or(0),
    )
}
