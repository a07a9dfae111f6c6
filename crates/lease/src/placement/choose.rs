//! The cheapest slot for one slice.

use super::backfill::Backfill;
use super::constraints::{Constraints, fitting, usable};
use super::diagnosis;
use super::occupancy::Slot;
use super::plan::Decision;
use super::rejection::{Cause, Obstacle, Rejection};
use super::score::{Costs, Demand};
use crate::model::{Gpu, Placement, Profile, Snapshot};
use crate::request::{Alternative, Slice};
use std::cmp::Reverse;

/// Chooses the cheapest free slot of the first alternative that has one. `reserved` are the slots that the
/// ledger has promised, whether the driver shows them yet or not.
pub fn choose<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Slot],
    constraints: &Constraints<'_>,
) -> Result<Decision<'a>, Rejection> {
    let mut rejections = Vec::new();
    for slice in constraints.alternatives {
        match choose_one(snapshot, reserved, slice, constraints) {
            Ok(decision) => return Ok(decision),
            Err(obstacle) => rejections.push(Rejection::from(Cause {
                request: Alternative {
                    slice: slice.clone(),
                    count: 1,
                },
                found: 0,
                obstacle,
            })),
        }
    }
    Err(Rejection::of_all(rejections))
}

/// Chooses the cheapest free slot for one slice.
pub(crate) fn choose_one<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Slot],
    slice: &Slice,
    constraints: &Constraints<'_>,
) -> Result<Decision<'a>, Obstacle> {
    let usable = usable(snapshot, constraints);
    if usable.is_empty() {
        return Err(diagnosis::no_gpu(snapshot, constraints));
    }
    let fitting = fitting(&usable, slice, constraints);
    if fitting.is_empty() {
        return Err(diagnosis::no_profile(&usable, slice, constraints));
    }

    let mut best: Option<Candidate<'a>> = None;
    let has_reserved = each_candidate(snapshot, &fitting, reserved, constraints, |candidate| {
        if best.as_ref().is_none_or(|b| candidate.rank < b.rank) {
            best = Some(candidate);
        }
    });
    let Some(best) = best else {
        return Err(match has_reserved {
            true => diagnosis::reserved(&fitting),
            false => diagnosis::no_slot(snapshot, &fitting, reserved, constraints),
        });
    };
    let (gpu, profile, placement) = (best.gpu, best.profile, best.placement);
    Ok(Decision {
        gpu,
        profile,
        placement,
        evicts: constraints
            .occupancy(gpu, reserved)
            .evictions(profile, placement),
    })
}

/// A free slot. The one with the least rank is chosen.
pub(crate) struct Candidate<'a> {
    pub gpu: &'a Gpu,
    pub profile: &'a Profile,
    pub placement: Placement,
    /// The cost on its GPU alone.
    pub cost: i64,
    pub rank: Rank,
}

/// The order of candidates: the fields are compared from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// The slices of one container go to different GPUs as far as possible.
    shares_gpu: bool,
    /// Gigabytes by the profile's name, then compute slices. An amount of memory may stand for different
    /// profiles on different models, and one profile has a little more or less memory on each.
    size: (u32, u32),
    /// False for an idle slice of the profile, which runmig hands out as it is.
    is_made: bool,
    cost: i64,
    free_slices: u32,
    start: Reverse<u32>,
    gpu_index: u32,
}

/// Visits each free slot. It returns true where free slots are reserved for earlier requests.
pub(crate) fn each_candidate<'a>(
    snapshot: &Snapshot,
    fitting: &[(&'a Gpu, &'a Profile)],
    reserved: &[Slot],
    constraints: &Constraints<'_>,
    mut visit: impl FnMut(Candidate<'a>),
) -> bool {
    let demand = Demand::on(snapshot, constraints);
    let mut has_reserved = false;
    for &(gpu, profile) in fitting {
        let occupancy = constraints.occupancy(gpu, reserved);
        let mut places = occupancy.places(profile).peekable();
        if places.peek().is_none() {
            continue;
        }
        let costs = Costs::of(&occupancy, &demand);
        let free_slices = occupancy.free_slices();
        let backfill = Backfill::on(gpu, constraints);
        let shares_gpu = constraints.own_gpus.contains(&gpu.uuid);
        for placement in places {
            if !backfill.permits(profile, placement) {
                has_reserved = true;
                continue;
            }
            let evicts = occupancy.evictions(profile, placement).len();
            let cost = costs.cost(placement);
            visit(Candidate {
                gpu,
                profile,
                placement,
                cost,
                rank: Rank {
                    shares_gpu,
                    size: (profile.gigabytes(), profile.compute_slices),
                    is_made: !occupancy.is_idle(profile, placement),
                    cost: costs.machine_cost(cost, placement, evicts),
                    free_slices,
                    start: Reverse(placement.start),
                    gpu_index: gpu.index,
                },
            });
        }
    }
    has_reserved
}
