//! The fewest containers to restart for a request to fit: found by exact search within a number of steps, and reported in
//! refusals.

use super::occupancy::{Occupancy, Occupant, Slot};
use super::plan::{Constraints, Decision, DefragPlan, Movable, Move, SearchResult, Site, is_on};
use super::several::{Diagnosis, Packer, choose_several};
use crate::model::{Gpu, GpuInstance, GpuUuid, Placement, Profile, Snapshot};
use crate::request::{Alternative, Slice};
use std::cmp::Reverse;

/// Finds the fewest containers of `movable` to restart for the request to fit; of several such sets, the one
/// with the least memory. The plan assumes that all of them stop, the request starts, and they start again,
/// the largest first. `choose` then gives each the slot that the plan names.
pub fn fewest_moves(
    snapshot: &Snapshot,
    reserved: &[Slot],
    movable: &[Movable],
    request: &Alternative,
    constraints: &Constraints<'_>,
    steps: u32,
) -> SearchResult {
    // Moved slices may use the GPUs that exclude the request.
    let gpus = snapshot.gpus.iter().filter(|gpu| is_on(gpu));
    let mut occupancies: Vec<Occupancy<'_>> = gpus
        .map(|gpu| constraints.occupancy(gpu, reserved))
        .collect();
    for occupancy in &mut occupancies {
        occupancy.occupants.retain(|l| !l.idle);
        for occupant in &mut occupancy.occupants {
            let (gpu, at) = (&occupancy.gpu.uuid, occupant.at);
            occupant.movable = movable.iter().position(|m| m.slot.is_at(gpu, at));
        }
    }
    let mut profiles: Vec<Vec<Option<&Profile>>> = Vec::new();
    for slice in request.all() {
        let gpus = occupancies.iter().map(|occupancy| occupancy.gpu);
        let on = gpus.map(|gpu| {
            let profile = constraints.profile_on(gpu, slice);
            profile.filter(|_| !constraints.excludes(gpu))
        });
        profiles.push(on.collect());
    }
    // The most frequent case: no order of slices makes memory.
    let free: u32 = occupancies.iter().map(Occupancy::free_slices).sum();
    let least = |on: &Vec<Option<&Profile>>| on.iter().flatten().map(|p| p.memory_slices()).min();
    let needed: Option<u32> = profiles.iter().map(least).sum();
    if needed.is_none_or(|needed| free < needed) {
        return SearchResult::Impossible;
    }
    if could_fit(&occupancies, &profiles, steps) == Some(false) {
        return SearchResult::Impossible;
    }
    let all = occupancies.iter().flat_map(|r| &r.occupants);
    let containers = all.filter_map(|l| Some(movable[l.movable?].containers));
    let most = containers.sum();
    // The last one comes first.
    let needs: Vec<Need> = (0..profiles.len()).rev().map(Need::Request).collect();
    let mut search = Search {
        snapshot,
        reserved,
        movable,
        constraints,
        request,
        profiles: &profiles,
        moved: Vec::new(),
        best: None,
        left: steps,
        trials: steps / STEPS_OF_TRIAL,
    };
    for moves in 0..=most {
        let done = search.place(&mut occupancies.clone(), needs.clone(), moves);
        if let Some((_, plan)) = search.best.take() {
            return SearchResult::Plan(plan);
        }
        if done.is_none() {
            return SearchResult::Beyond(moves.saturating_sub(1));
        }
    }
    SearchResult::Impossible
}

/// Says whether the request fits if every movable slice may go anywhere. None where that takes too long.
fn could_fit(
    occupancies: &[Occupancy<'_>],
    profiles: &[Vec<Option<&Profile>>],
    steps: u32,
) -> Option<bool> {
    let mut bare = occupancies.to_vec();
    let mut names: Vec<String> = Vec::new();
    for occupancy in &mut bare {
        for occupant in occupancy.occupants.iter().filter(|l| l.movable.is_some()) {
            names.push(occupancy.name(occupant.profile_id));
        }
        occupancy.occupants.retain(|l| l.movable.is_none());
    }
    let mut packer = Packer::new(&bare, steps / 10);
    let meanings = |on: &Vec<Option<&'_ Profile>>| {
        let mut names: Vec<String> = on.iter().flatten().map(|p| p.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let slices: Vec<Vec<String>> = profiles.iter().map(meanings).collect();
    let most = slices.iter().map(Vec::len).max().unwrap_or_default();
    // Several slices of different profiles may fit, one on each GPU.
    let mut sure = most == 1 || slices.len() == 1;
    for n in 0..most {
        let request = slices.iter();
        let request = request.filter_map(|names| names.get(n).or(names.last()));
        match packer.holds(names.iter().chain(request).map(String::as_str)) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => sure = false,
        }
    }
    sure.then_some(false)
}

/// A slice without a slot.
#[derive(Clone, Copy, Debug)]
enum Need {
    /// A slice of the request, by its number.
    Request(usize),
    /// A movable slice that has left its slot, by its number.
    Moved(usize),
}

struct Search<'s, 'a> {
    snapshot: &'s Snapshot,
    reserved: &'s [Slot],
    movable: &'s [Movable],
    constraints: &'s Constraints<'s>,
    request: &'s Alternative,
    /// The profile that each slice of the request stands for on each GPU.
    profiles: &'s [Vec<Option<&'a Profile>>],
    moved: Vec<usize>,
    /// The best plan so far, and the memory slices that it moves.
    best: Option<(u32, DefragPlan)>,
    left: u32,
    /// How many more orders of moves may be tried of slices that are in nobody's way.
    trials: u32,
}

impl<'s, 'a> Search<'s, 'a> {
    /// Places all needs, and moves slices of at most `budget` more containers. None when out of steps.
    fn place(
        &mut self,
        occupancies: &mut [Occupancy<'a>],
        mut needs: Vec<Need>,
        budget: usize,
    ) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        let Some(need) = needs.pop() else {
            self.settle(budget, 0);
            return Some(());
        };
        if self.is_beaten() {
            return Some(());
        }
        for g in 0..occupancies.len() {
            // One of several equal GPUs is enough.
            if (0..g).any(|other| self.are_alike(occupancies, other, g)) {
                continue;
            }
            let gpu: &'a Gpu = occupancies[g].gpu;
            let profile = match need {
                Need::Request(n) => self.profiles[n][g],
                Need::Moved(which) if !self.movable[which].may_use(gpu) => None,
                Need::Moved(which) => self.origin(which).and_then(|(_, moved)| {
                    let mut profiles = gpu.profiles.iter();
                    profiles.find(|p| p.name == moved.name)
                }),
            };
            let Some(profile) = profile else { continue };
            for &at in &profile.placements {
                self.put(occupancies, g, profile, at, &needs, budget)?;
            }
        }
        Some(())
    }

    /// Says whether both have the same occupants, for as many containers, and accept the same slices.
    fn are_alike(&self, occupancies: &[Occupancy<'a>], a: usize, b: usize) -> bool {
        let as_movable = |a: usize, b: usize| self.movable[a].is_like(&self.movable[b]);
        let (gpu, other) = (occupancies[a].gpu, occupancies[b].gpu);
        occupancies[a].is_like(&occupancies[b], as_movable)
            && (self.profiles.iter()).all(|on| on[a].is_some() == on[b].is_some())
            && (self.movable.iter()).all(|m| m.may_use(gpu) == m.may_use(other))
    }

    /// Moves the slices that overlap one placement, puts the profile there, and continues.
    fn put(
        &mut self,
        occupancies: &mut [Occupancy<'a>],
        g: usize,
        profile: &'a Profile,
        at: Placement,
        needs: &[Need],
        budget: usize,
    ) -> Option<()> {
        let new = Occupant::new(profile.id, at);
        let occupancy = &occupancies[g];
        // Each overlapping slice has to go; the first of the slices that exhaust a part is enough.
        let overlaps = |l: &Occupant| l.slices & new.slices != 0;
        let going: Vec<usize> = match occupancy.occupants.iter().position(overlaps) {
            Some(first) => vec![first],
            None => match occupancy.exhausted(profile, occupancy.occupants.iter()) {
                Some(what) => {
                    let all = occupancy.occupants.iter().enumerate();
                    let helping = all.filter(|(_, l)| occupancy.frees(what, profile, l));
                    helping.map(|(i, _)| i).collect()
                }
                None => {
                    occupancies[g].occupants.push(new);
                    let done = self.place(occupancies, needs.to_vec(), budget);
                    occupancies[g].occupants.pop();
                    return done;
                }
            },
        };
        for i in going {
            let occupant = occupancies[g].occupants[i];
            let Some(which) = occupant.movable else {
                continue;
            };
            let Some(budget) = budget.checked_sub(self.movable[which].containers) else {
                continue;
            };
            occupancies[g].occupants.remove(i);
            self.moved.push(which);
            let mut more = needs.to_vec();
            let size = |need: &Need| match need {
                Need::Request(_) => u32::MAX,
                Need::Moved(which) => self.size(*which),
            };
            let place = more.partition_point(|need| size(need) <= occupant.at.size);
            more.insert(place, Need::Moved(which));
            let done = self.put(occupancies, g, profile, at, &more, budget);
            self.moved.pop();
            occupancies[g].occupants.insert(i, occupant);
            done?;
        }
        Some(())
    }

    /// Returns the memory slices that the moves take.
    fn memory(&self) -> u32 {
        self.moved.iter().map(|which| self.size(*which)).sum()
    }

    fn size(&self, which: usize) -> u32 {
        self.movable[which].slot.placement.size
    }

    /// Returns whether the best plan so far moves no more than these moves.
    fn is_beaten(&self) -> bool {
        { self.best.as_ref() }.is_some_and(|(least, _)| *least <= self.memory())
    }

    /// Keeps the plan that `run` makes of the moves, if it is the best so far. The request and the moved slices fit
    /// together, but `choose` may not find it: then one more moved slice, from the `first` on, may change its choice.
    fn settle(&mut self, budget: usize, first: usize) {
        if self.is_beaten() {
            return;
        }
        let mut in_order = self.moved.clone();
        in_order.sort_by_key(|which| (Reverse(self.size(*which)), *which));
        let orders = orders(in_order);
        if first > 0 {
            let Some(left) = self.trials.checked_sub(orders.len() as u32) else {
                return;
            };
            self.trials = left;
        }
        let plan = orders.iter().find_map(|order| self.run(order));
        if let Some(plan) = plan {
            self.best = Some((self.memory(), plan));
            return;
        }
        for which in first..self.movable.len() {
            let may_move = !self.moved.contains(&which) && self.origin(which).is_some();
            if let Some(left) = budget.checked_sub(self.movable[which].containers)
                && may_move
            {
                self.moved.push(which);
                self.settle(left, which + 1);
                self.moved.pop();
            }
        }
    }

    /// Returns the GPU that a movable slice leaves, and its profile.
    fn origin(&self, which: usize) -> Option<(&'s Gpu, &'s Profile)> {
        let slot = &self.movable[which].slot;
        let gpu = self.snapshot.gpu(&slot.gpu)?;
        Some((gpu, gpu.profile(slot.profile_id)?))
    }

    /// Removes the moved slices, places the request, and places the moved slices again.
    fn run(&self, moved: &[usize]) -> Option<DefragPlan> {
        let is_moved = |gpu: &GpuUuid, at: Placement| {
            let mut moved = moved.iter().map(|which| &self.movable[*which]);
            moved.any(|m| m.slot.is_at(gpu, at))
        };
        let mut snapshot = self.snapshot.clone();
        for gpu in &mut snapshot.gpus {
            let uuid = gpu.uuid.clone();
            gpu.instances.retain(|i| !is_moved(&uuid, i.placement));
        }
        let mut reserved = self.reserved.to_vec();
        reserved.retain(|r| !is_moved(&r.gpu, r.placement));
        let mut place = |request: &Alternative, constraints: &Constraints<'_>| {
            let found = choose_several(&snapshot, &reserved, request, constraints).ok()?;
            let sites: Vec<Site> = found.iter().map(Site::from).collect();
            let slots: Vec<Slot> = found.iter().map(Decision::slot).collect();
            for slot in slots {
                let instance = GpuInstance {
                    id: u32::MAX,
                    profile_id: slot.profile_id,
                    placement: slot.placement,
                };
                let gpu = snapshot.gpus.iter_mut().find(|g| g.uuid == slot.gpu)?;
                gpu.instances.push(instance);
                reserved.retain(|r| r.gpu != slot.gpu || !r.placement.overlaps(slot.placement));
            }
            Some(sites)
        };
        let sites = place(self.request, self.constraints)?;
        let mut moves = Vec::new();
        for &which in moved {
            let (gpu, profile) = self.origin(which)?;
            let again = Alternative::one(Slice::Profile(profile.name.parse().ok()?));
            let Movable { slot, excluded, .. } = &self.movable[which];
            let own = Constraints {
                min_compute: 0,
                excluded,
                ..*self.constraints
            };
            let to = place(&again, &own)?.pop()?;
            moves.push(Move {
                which,
                profile: profile.name.clone(),
                from_gpu: gpu.index,
                from: slot.placement,
                to_gpu: to.gpu_index,
                to: to.placement,
            });
        }
        Some(DefragPlan { sites, moves })
    }
}

/// As many steps of the search take about as long as the simulation of one order of moves.
const STEPS_OF_TRIAL: u32 = 20;

/// Returns the given order, and then every other order of few slices, or every exchange of two of many. The
/// order matters where rules exclude GPUs from some of them.
fn orders(given: Vec<usize>) -> Vec<Vec<usize>> {
    let n = given.len();
    let mut all = vec![given];
    if n <= FEW {
        for first in 0..n {
            // Each order so far continues with every choice for `first`.
            for i in 0..all.len() {
                for other in first + 1..n {
                    let mut order = all[i].clone();
                    order[first..=other].rotate_right(1);
                    all.push(order);
                }
            }
        }
        return all;
    }
    for (a, b) in (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b))) {
        let mut order = all[0].clone();
        order.swap(a, b);
        all.push(order);
    }
    all
}

/// So many slices have 120 orders.
const FEW: usize = 5;

/// Diagnoses why a request gets no slots, with the moves that would make room. It takes longer than a choice, and is for
/// errors. It returns None where slots are free for the request: then a limit that placement does not know forbids it.
/// `steps` bounds the search.
pub fn diagnose(
    snapshot: &Snapshot,
    reserved: &[Slot],
    movable: &[Movable],
    request: &Alternative,
    constraints: &Constraints<'_>,
    steps: u32,
) -> Option<Box<Diagnosis>> {
    let mut diagnosis = choose_several(snapshot, reserved, request, constraints).err()?;
    if let Some(shortage) = diagnosis.rejection.shortages_mut().next() {
        // Without the earlier requests.
        let alone = Constraints {
            blockers: &[],
            ours: &[],
            ..*constraints
        };
        let found = fewest_moves(snapshot, reserved, movable, request, &alone, steps);
        shortage.search = Some(match found {
            SearchResult::Impossible if movable.is_empty() => SearchResult::Immovable,
            found => found,
        });
    }
    Some(diagnosis)
}

#[cfg(test)]
mod tests {
    use super::orders;
    use std::collections::BTreeSet;

    #[test]
    fn tries_every_order_of_few_and_every_exchange_of_many() {
        for (n, count) in rows! {
            1 => 1;
            3 => 6;
            5 => 120;
            6 => 16;
            8 => 29;
        } {
            let all = orders((0..n).collect());
            assert_eq!(all.len(), count);
            assert_eq!(BTreeSet::from_iter(all).len(), count, "each once");
        }
    }
}
