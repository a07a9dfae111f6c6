//! The cost of a slot for later requests: the free memory that it makes useless.
//!
//! The fragmentation gradient (docs/packing.md): F of a GPU is, over all its profiles, the free
//! memory slices that no still-free place of the profile covers, a profile weighing more the more of
//! it are in use. The cost of a slot is the growth of F, plus a share of the growth of F after the next
//! departure, on average: of two slots that are as good now, the better one leaves more after it. Free
//! memory of the GPU costs too, so that whole GPUs stay free.
//!
//! Between models the cost also counts the taken memory, and weighs all by the memory of a slice and the
//! size of the GPU. The rest of a small GPU serves fewer requests.

use super::constraints::Constraints;
use super::occupancy::{Occupancy, SliceSet, slice_set};
use crate::model::{Gpu, GpuInstance, Placement, Snapshot};

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
                idle.any(|r| r.gpu == gpu.uuid && r.placement == i.placement)
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
        let costs = Costs {
            occupancy,
            weights: demand.weights(occupancy.gpu),
            free: occupancy.free(),
            before: 0,
            worth: worth(occupancy),
        };
        Costs {
            before: costs.potential(costs.free, None),
            ..costs
        }
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
