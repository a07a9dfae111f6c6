//! The cheapest slot for one slice, by its score.

use super::backfill::Backfill;
use super::diagnosis::{self, first_profile};
use super::occupancy::{Occupancy, SliceSet, Slot, slice_set};
use super::plan::{Constraints, Decision, fitting, usable};
use super::rejection::{Obstacle, Rejection};
use crate::model::{Gpu, GpuInstance, Placement, Profile, Snapshot};
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
            Err(obstacle) => {
                let request = Alternative::one(slice.clone());
                rejections.push(Rejection::of(&request, 0, obstacle));
            }
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
    let fitting = fitting(&usable, slice, constraints);
    if fitting.is_empty() {
        let closed = diagnosis::closed(snapshot, constraints);
        let known = [usable, closed].concat();
        let offers = |gpu: &&Gpu| constraints.profile_on(gpu, slice).is_some();
        return Err(match known.is_empty() || known.iter().any(offers) {
            true => diagnosis::no_gpu(snapshot, constraints),
            false => diagnosis::no_profile(&known, slice, constraints),
        });
    }
    let (candidates, has_reserved) = candidates(snapshot, &fitting, reserved, constraints);
    match candidates.into_iter().min_by_key(|one| one.rank) {
        Some(best) => Ok(best.decision),
        None if has_reserved => Err(Obstacle::Reserved {
            profile: first_profile(&fitting),
        }),
        None => Err(diagnosis::no_slot(
            snapshot,
            &fitting,
            reserved,
            constraints,
        )),
    }
}

/// A free slot. The one with the least rank is chosen.
pub(crate) struct Candidate<'a> {
    pub decision: Decision<'a>,
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
    pub is_made: bool,
    cost: i64,
    free_slices: u32,
    start: Reverse<u32>,
    gpu_index: u32,
}

/// Returns each free slot, and whether free slots are reserved for earlier requests.
pub(crate) fn candidates<'a>(
    snapshot: &Snapshot,
    fitting: &[(&'a Gpu, &'a Profile)],
    reserved: &[Slot],
    constraints: &Constraints<'_>,
) -> (Vec<Candidate<'a>>, bool) {
    let demand = Demand::on(snapshot, constraints);
    let (mut candidates, mut has_reserved) = (Vec::new(), false);
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
            let evicts = occupancy.evictions(profile, placement);
            let cost = costs.cost(placement);
            let rank = Rank {
                shares_gpu,
                size: (profile.gigabytes(), profile.compute_slices),
                is_made: !occupancy.is_idle(profile, placement),
                cost: costs.machine_cost(cost, placement, evicts.len()),
                free_slices,
                start: Reverse(placement.start),
                gpu_index: gpu.index,
            };
            let decision = Decision {
                gpu,
                profile,
                placement,
                evicts,
            };
            candidates.push(Candidate {
                decision,
                cost,
                rank,
            });
        }
    }
    (candidates, has_reserved)
}

/// Costs are whole numbers: a memory slice that one profile of mean weight loses is this much.
pub(super) const SLICE: i64 = 840 * NOW * EVEN;
/// Weights of the two parts. Each number of slices up to 8 divides 840.
const NOW: i64 = 20;
const NEXT: i64 = 3;
/// The mean weight of a profile, and its part that follows the demand.
const EVEN: i64 = 100;
const BY_DEMAND: i64 = 40;
/// The cost of a free memory slice.
const FREE: i64 = SLICE * 60 / 100;

/// The number of slices of each profile in use on the machine: the best guess at later requests.
pub(crate) struct Demand<'a>(Vec<(&'a str, i64)>);

impl<'a> Demand<'a> {
    pub(super) fn on(snapshot: &'a Snapshot, constraints: &Constraints<'_>) -> Self {
        let mut there: Vec<(&str, i64)> = Vec::with_capacity(16);
        for gpu in &snapshot.gpus {
            let is_spare = |i: &&GpuInstance| {
                let mut idle = constraints.idle.iter().chain(constraints.evicted);
                idle.any(|r| r.is_at(&gpu.uuid, i.placement))
            };
            for instance in gpu.instances.iter().filter(|i| !is_spare(i)) {
                let Some(profile) = gpu.profile(instance.profile_id) else {
                    continue;
                };
                match there.iter_mut().find(|(name, _)| *name == profile.name) {
                    Some((_, number)) => *number += 1,
                    None => there.push((&profile.name, 1)),
                }
            }
        }
        Demand(there)
    }

    /// Returns the weight of each profile of a GPU. It counts one more of each, so that no weight is 0.
    fn weights(&self, gpu: &Gpu) -> Vec<i64> {
        let number = |name: &str| {
            let known = self.0.iter().find(|(there, _)| *there == name);
            1 + known.map_or(0, |(_, number)| *number)
        };
        let mut weights: Vec<i64> = gpu.profiles.iter().map(|p| number(&p.name)).collect();
        let (all, profiles) = (weights.iter().sum::<i64>(), weights.len() as i64);
        for weight in &mut weights {
            *weight = EVEN - BY_DEMAND + BY_DEMAND * profiles * *weight / all;
        }
        weights
    }
}

/// The costs of slots on one GPU.
pub(crate) struct Costs<'r, 'a> {
    occupancy: &'r Occupancy<'a>,
    weights: Vec<i64>,
    free: SliceSet,
    before: i64,
    /// The worth of a memory slice that one profile loses.
    worth: i64,
}

impl<'r, 'a> Costs<'r, 'a> {
    pub(super) fn of(occupancy: &'r Occupancy<'a>, demand: &Demand<'_>) -> Self {
        let mut costs = Costs {
            occupancy,
            weights: demand.weights(occupancy.gpu),
            free: occupancy.free(),
            before: 0,
            worth: worth(occupancy),
        };
        costs.before = costs.potential(costs.free, None);
        costs
    }

    /// Returns the cost of a slot among all GPUs, from its cost on its own GPU. Each idle slice that has to go
    /// for it counts as a memory slice that one profile loses.
    pub(crate) fn machine_cost(&self, cost: i64, at: Placement, evicts: usize) -> i64 {
        let profiles = self.occupancy.gpu.profiles.len() as i64;
        let taken = i64::from(at.size) * profiles * SLICE * 3 / 2;
        let lost = taken + cost + evicts as i64 * SLICE;
        lost.saturating_mul(self.worth)
    }

    pub(super) fn cost(&self, at: Placement) -> i64 {
        let new = slice_set(at);
        let free = i64::from(self.free.count_ones()) * FREE;
        self.potential(self.free & !new, Some(new)) - self.before + free
    }

    fn potential(&self, free: SliceSet, new: Option<SliceSet>) -> i64 {
        let lost = |free| self.occupancy.uncovered(free, &self.weights);
        let (mut leaving, mut sum) = (0, 0);
        for one in self.occupancy.taken().map(|l| l.slices).chain(new) {
            leaving += 1;
            sum += lost(free | one);
        }
        let now = lost(free);
        let next = match leaving {
            0 => 840 * now,
            n => 840 * sum / n,
        };
        NOW * 840 * now + NEXT * next
    }
}

/// Returns the worth of a memory slice that one profile loses. It is equal on models of equal nominal size,
/// though one has a little more memory.
fn worth(occupancy: &Occupancy<'_>) -> i64 {
    let profiles = &occupancy.gpu.profiles;
    let size = u64::from(profiles.iter().map(|p| p.gigabytes()).max().unwrap_or(0));
    let parts = u64::from(occupancy.total_slices().max(1)) * profiles.len().max(1) as u64;
    // The factors keep enough digits through the divisions.
    let worth = size * 1000 * (size * 10_000).isqrt() / parts;
    worth.try_into().unwrap_or(i64::MAX)
}
