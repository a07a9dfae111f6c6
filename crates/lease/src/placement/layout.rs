//! From the instances of one GPU and those that a layout wants to the changes between them: the fewest destroys, and
//! never one of a held instance.

use super::occupancy::{Occupancy, Occupant};
use crate::model::{Gpu, Placement, Profile};
use std::collections::BTreeMap;

/// The places that one search may look at.
const MAX_STEPS: u32 = 200_000;
/// A set of instances is a set of bits.
const MAX_CANDIDATES: usize = 16;

/// An instance on the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The id of its profile.
    pub profile_id: u32,
    /// Its memory slices.
    pub placement: Placement,
    /// The compute slices of each compute instance.
    pub parts: Vec<u32>,
    /// Whether it has to stay: a lease, a promise or a process holds it.
    pub is_held: bool,
}

/// An instance to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInstance {
    /// The id of its profile.
    pub profile_id: u32,
    /// Its memory slices.
    pub placement: Placement,
    /// The compute slices of each compute instance, largest first.
    pub parts: Vec<u32>,
}

/// The wanted compute instances by the id of their profile, each by its compute slices.
pub type WantedParts = BTreeMap<u32, Vec<u32>>;

/// The changes on one GPU: first the destroys, then the rest in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutPlan {
    /// The instances that stay, by their index: each has a part of the wanted compute instances, and no other.
    pub keep: Vec<usize>,
    /// The instances that go, by their index.
    pub destroy: Vec<usize>,
    /// The new instances.
    pub create: Vec<NewInstance>,
}

/// Why `plan_layout` finds no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutObstacle {
    /// The layout needs the end of held instances. The plan is the one with the fewest of these among its destroys.
    Held(LayoutPlan),
    /// The GPU cannot hold the layout, even when it is empty.
    NoFit,
    /// The search took too long.
    Unknown,
}

/// Returns the changes with the fewest destroys. Among several plans it chooses the one that leaves most room: the least
/// free memory that profiles of the GPU cannot use.
///
/// # Errors
/// No order of changes leads to the layout, or one leads over a held instance.
pub fn plan_layout(
    gpu: &Gpu,
    standing: &[Standing],
    wanted: &WantedParts,
) -> Result<LayoutPlan, LayoutObstacle> {
    let plan = Search::new(gpu, standing, wanted)?.best()?;
    let plan = plan.ok_or(LayoutObstacle::NoFit)?;
    match plan.destroy.iter().any(|n| standing[*n].is_held) {
        true => Err(LayoutObstacle::Held(plan)),
        false => Ok(plan),
    }
}

struct Search<'a> {
    gpu: &'a Gpu,
    standing: &'a [Standing],
    wanted: &'a WantedParts,
    /// The instances that could stay. All others go.
    candidates: Vec<usize>,
    steps: u32,
}

impl<'a> Search<'a> {
    fn new(
        gpu: &'a Gpu,
        standing: &'a [Standing],
        wanted: &'a WantedParts,
    ) -> Result<Search<'a>, LayoutObstacle> {
        let could_stay = |n: &usize| {
            let one = &standing[*n];
            let mut left = wanted.get(&one.profile_id).cloned().unwrap_or_default();
            let is_offered = gpu.profile(one.profile_id).is_some();
            is_offered && !one.parts.is_empty() && take(&mut left, &one.parts)
        };
        let candidates: Vec<usize> = (0..standing.len()).filter(could_stay).collect();
        if candidates.len() > MAX_CANDIDATES {
            return Err(LayoutObstacle::Unknown);
        }
        Ok(Search {
            gpu,
            standing,
            wanted,
            candidates,
            steps: MAX_STEPS,
        })
    }

    /// Returns the best plan of those that keep most held instances.
    fn best(&mut self) -> Result<Option<LayoutPlan>, LayoutObstacle> {
        let sets = 0..1u32 << self.candidates.len();
        let set = |bits: u32| -> Vec<usize> {
            let all = self.candidates.iter().enumerate();
            let in_set = all.filter(|(bit, _)| bits >> bit & 1 == 1);
            in_set.map(|(_, n)| *n).collect()
        };
        let mut sets: Vec<Vec<usize>> = sets.map(set).collect();
        // As few held ones as possible go.
        let rank = |kept: &Vec<usize>| {
            let held = kept.iter().filter(|n| self.standing[**n].is_held);
            (held.count(), kept.len())
        };
        sets.sort_by_key(|kept| std::cmp::Reverse(rank(kept)));
        let mut best: Option<((usize, usize), i64, LayoutPlan)> = None;
        for kept in sets {
            let size = rank(&kept);
            if best.as_ref().is_some_and(|(of_best, ..)| size < *of_best) {
                break;
            }
            let Some(new) = self.group(&kept) else {
                continue;
            };
            let mut occupancy = Occupancy::empty(self.gpu);
            let stay = kept.iter().map(|n| &self.standing[*n]);
            let stay = stay.map(|one| Occupant::new(one.profile_id, one.placement));
            occupancy.occupants.extend(stay);
            if let Some((cost, placements)) = self.place(&occupancy, &new, 0)?
                && best.as_ref().is_none_or(|(_, least, _)| cost < *least)
            {
                let create = new.iter().zip(placements).map(|(one, at)| NewInstance {
                    profile_id: one.profile.id,
                    placement: at,
                    parts: one.parts.clone(),
                });
                let goes = |n: &usize| !kept.contains(n);
                let plan = LayoutPlan {
                    destroy: (0..self.standing.len()).filter(goes).collect(),
                    create: create.collect(),
                    keep: kept,
                };
                best = Some((size, cost, plan));
            }
        }
        Ok(best.map(|(.., plan)| plan))
    }

    /// Puts the wanted compute instances that the kept instances lack into new ones. Returns none if the kept have too many.
    fn group(&self, kept: &[usize]) -> Option<Vec<New<'a>>> {
        let mut new: Vec<New<'a>> = Vec::new();
        for (id, sizes) in self.wanted {
            let profile = self.gpu.profile(*id)?;
            let mut left = sizes.clone();
            let mut here = kept.iter().map(|n| &self.standing[*n]);
            if !here.all(|one| one.profile_id != *id || take(&mut left, &one.parts)) {
                return None;
            }
            left.sort_by_key(|slices| std::cmp::Reverse(*slices));
            let mut made: Vec<New<'a>> = Vec::new();
            for slices in left {
                let has_room =
                    |one: &&mut New<'_>| holds(profile, &[&one.parts[..], &[slices]].concat());
                match made.iter_mut().find(has_room) {
                    Some(one) => one.parts.push(slices),
                    None if holds(profile, &[slices]) => made.push(New {
                        profile,
                        parts: vec![slices],
                    }),
                    None => return None,
                }
            }
            new.extend(made);
        }
        // The largest first: they have the fewest places.
        new.sort_by_key(|one| std::cmp::Reverse((one.profile.memory_slices(), one.profile.id)));
        Some(new)
    }

    /// Returns the places of the new instances that leave most room, and their cost.
    fn place(
        &mut self,
        occupancy: &Occupancy<'_>,
        new: &[New<'_>],
        from: u32,
    ) -> Result<Option<(i64, Vec<Placement>)>, LayoutObstacle> {
        self.steps = self.steps.checked_sub(1).ok_or(LayoutObstacle::Unknown)?;
        let Some((one, rest)) = new.split_first() else {
            let even = vec![1; self.gpu.profiles.len()];
            let cost = occupancy.uncovered(occupancy.free(), &even);
            return Ok(Some((cost, Vec::new())));
        };
        let mut best: Option<(i64, Vec<Placement>)> = None;
        // Equal ones in one order.
        for at in occupancy.places(one.profile).filter(|at| at.start >= from) {
            let is_same = rest
                .first()
                .is_some_and(|next| next.profile.id == one.profile.id);
            let from = if is_same { at.start + 1 } else { 0 };
            let found = self.place(&occupancy.with(one.profile, at), rest, from)?;
            if let Some((cost, mut places)) = found
                && best.as_ref().is_none_or(|(least, _)| cost < *least)
            {
                places.insert(0, at);
                best = Some((cost, places));
            }
        }
        Ok(best)
    }
}

/// A new instance without its place.
struct New<'a> {
    profile: &'a Profile,
    parts: Vec<u32>,
}

/// Takes each of `there` out of the wanted ones. Returns false if one is not among them.
fn take(wanted: &mut Vec<u32>, there: &[u32]) -> bool {
    there.iter().all(|part| {
        let at = wanted.iter().position(|wanted| wanted == part);
        at.map(|at| wanted.swap_remove(at)).is_some()
    })
}

/// Returns whether an instance holds these compute instances, which are created the largest first.
fn holds(profile: &Profile, parts: &[u32]) -> bool {
    let slices = profile.compute_slices;
    parts.iter().all(|part| is_part(slices, *part)) && parts.iter().sum::<u32>() <= slices
}

/// Returns whether a compute instance of this size exists in an instance with these compute slices.
pub fn is_part(slices: u32, part: u32) -> bool {
    part == slices
        || part == 1
        || [(3, 2), (4, 2), (7, 2), (7, 3), (7, 4)].contains(&(slices, part))
}
