//! The cheapest place for one slice.

use super::backfill::Backfill;
use super::constraints::{Constraints, fitting, usable};
use super::diagnosis;
use super::occupancy::Slot;
use super::plan::Decision;
use super::rejection::Rejection;
use super::score::{Costs, Demand};
use crate::model::{Gpu, Placement, Profile, Snapshot};
use crate::request::Slice;
use std::cmp::Reverse;

/// `reserved` is what the ledger has promised, whether the driver shows it yet or not.
pub fn choose<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Slot],
    constraints: &Constraints<'_>,
) -> Result<Decision<'a>, Rejection> {
    let usable = usable(snapshot, constraints);
    if usable.is_empty() {
        return Err(diagnosis::no_gpu(snapshot, constraints));
    }
    let mut noes = Vec::new();
    for slice in constraints.alternatives {
        match choose_one(snapshot, &usable, reserved, slice, constraints) {
            Ok(decision) => return Ok(decision),
            Err(no) => noes.push(no),
        }
    }
    Err(diagnosis::none_of(noes))
}

fn choose_one<'a>(
    snapshot: &'a Snapshot,
    usable: &[&'a Gpu],
    reserved: &[Slot],
    slice: &Slice,
    constraints: &Constraints<'_>,
) -> Result<Decision<'a>, Rejection> {
    let fitting = fitting(usable, slice, constraints);
    if fitting.is_empty() {
        return Err(diagnosis::no_profile(usable, slice, constraints));
    }

    let mut best: Option<Candidate<'a>> = None;
    let kept = each_candidate(snapshot, &fitting, reserved, constraints, |candidate| {
        if best.as_ref().is_none_or(|b| candidate.rank < b.rank) {
            best = Some(candidate);
        }
    });
    let Some(best) = best else {
        if kept {
            return Err(diagnosis::kept(&fitting, slice));
        }
        return Err(diagnosis::full(
            snapshot,
            &fitting,
            reserved,
            slice,
            constraints,
        ));
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

/// A place where a slice could go. The least rank is taken.
pub struct Candidate<'a> {
    pub gpu: &'a Gpu,
    pub profile: &'a Profile,
    pub placement: Placement,
    /// On its GPU.
    pub cost: i64,
    pub rank: Rank,
}

/// In this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Several slices of one container lie on GPUs of their own.
    shares_gpu: bool,
    /// An amount of memory may mean different profiles on different models: the smallest by name, as
    /// one and the same has a little more or less memory on each; then the fewest compute slices.
    size: (u32, u32),
    /// An idle slice of just that profile is had without making one.
    is_made: bool,
    cost: i64,
    free_slices: u32,
    start: Reverse<u32>,
    gpu_index: u32,
}

/// Says whether there were places that those who came before wait for.
pub fn each_candidate<'a>(
    snapshot: &Snapshot,
    fitting: &[(&'a Gpu, &'a Profile)],
    reserved: &[Slot],
    constraints: &Constraints<'_>,
    mut see: impl FnMut(Candidate<'a>),
) -> bool {
    let demand = Demand::on(snapshot, constraints);
    let mut kept = false;
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
                kept = true;
                continue;
            }
            let evicts = occupancy.evictions(profile, placement).len();
            let cost = costs.cost(placement);
            see(Candidate {
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
    kept
}
