//! From the instances of one GPU and those that a layout wants to the changes between them: the fewest destroys, and
//! never one of a held instance.

use super::occupancy::{Occupancy, Occupant};
use crate::model::{Gpu, Part, Placement, Profile};
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
    /// Its compute instances.
    pub parts: Vec<Part>,
    /// The number of further compute instances that the driver has room for, by their compute slices, each size alone.
    pub room: BTreeMap<u32, u32>,
    /// Whether it has to stay: a lease, a promise or a process holds it.
    pub is_held: bool,
}

impl Standing {
    /// Returns whether these compute instances fit beside the present ones: some of one size, as far as the driver has room,
    /// and some of one slice, which fit into each gap. One that exceeds its slices is known to fit alone.
    fn has_room(&self, more: &[Part]) -> bool {
        let mut all = self.parts.iter().chain(more);
        if !self.parts.is_empty() && !more.is_empty() && all.any(Part::exceeds_its_slices) {
            return false;
        }
        let sizes = more.iter().map(|part| part.slices);
        let large: Vec<u32> = sizes.filter(|slices| *slices > 1).collect();
        let Some(size) = large.first().filter(|_| !self.parts.is_empty()) else {
            return true;
        };
        let room = self.room.get(size).map_or(0, |room| *room as usize);
        large.iter().all(|slices| slices == size) && large.len() <= room
    }
}

/// An instance to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInstance {
    /// The id of its profile.
    pub profile_id: u32,
    /// Its memory slices.
    pub placement: Placement,
    /// Its compute instances, largest first.
    pub parts: Vec<Part>,
}

/// The wanted compute instances by the id of their profile, each by its compute slices.
pub type WantedParts = BTreeMap<u32, Vec<u32>>;

/// The compute instances that kept instances lack, by their index, the largest first.
pub type Missing = BTreeMap<usize, Vec<Part>>;

/// The changes on one GPU: first the destroys, then the rest in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutPlan {
    /// The instances that stay, by their index, with the compute instances that each lacks, largest first.
    pub keep: Missing,
    /// The instances that go, by their index.
    pub destroy: Vec<usize>,
    /// The new instances.
    pub create: Vec<NewInstance>,
}

/// The reason for which there is no plan.
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
    let mut search = Search::new(gpu, standing, wanted)?;
    if let Some(plan) = search.best(&|n| standing[n].is_held)? {
        return Ok(plan);
    }
    match search.best(&|_| false)? {
        Some(plan) => Err(LayoutObstacle::Held(plan)),
        None => Err(LayoutObstacle::NoFit),
    }
}

/// Returns the changes that lead to instances at given places. An instance stays if a place, its profile and its compute
/// instances are wanted; one without some of them stays too, and gets them if they fit beside those that it has.
///
/// # Errors
/// Two of the places cannot exist together, or a held instance is in the way.
pub fn plan_places(
    gpu: &Gpu,
    standing: &[Standing],
    wanted: &[NewInstance],
) -> Result<LayoutPlan, LayoutObstacle> {
    let mut occupancy = Occupancy::empty(gpu);
    let mut plan = LayoutPlan::default();
    for one in wanted {
        let profile = gpu.profile(one.profile_id).ok_or(LayoutObstacle::NoFit)?;
        let fits = holds(profile, &one.parts);
        let mut places = occupancy.places(profile);
        if !fits || !places.any(|at| at == one.placement) {
            return Err(LayoutObstacle::NoFit);
        }
        occupancy = occupancy.with(profile, one.placement);
        let is_it = |s: &Standing| (s.profile_id, s.placement) == (one.profile_id, one.placement);
        let missing = standing.iter().position(is_it).and_then(|n| {
            let mut left = one.parts.clone();
            let stays = take(&mut left, &standing[n].parts);
            (stays && standing[n].has_room(&left)).then_some((n, left))
        });
        match missing {
            Some((n, left)) => drop(plan.keep.insert(n, left)),
            None => plan.create.push(one.clone()),
        }
    }
    let goes = |n: &usize| !plan.keep.contains_key(n);
    plan.destroy = (0..standing.len()).filter(goes).collect();
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
            let mut left = parts(wanted.get(&one.profile_id).map_or(&[], Vec::as_slice));
            gpu.profile(one.profile_id).is_some() && !left.is_empty() && take(&mut left, &one.parts)
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

    /// Returns the best plan that keeps each instance that must stay.
    fn best(
        &mut self,
        must_stay: &dyn Fn(usize) -> bool,
    ) -> Result<Option<LayoutPlan>, LayoutObstacle> {
        let must: Vec<usize> = (0..self.standing.len()).filter(|n| must_stay(*n)).collect();
        let sets = 0..1u32 << self.candidates.len();
        let set = |bits: u32| -> Vec<usize> {
            let all = self.candidates.iter().enumerate();
            let in_set = all.filter(|(bit, _)| bits >> bit & 1 == 1);
            in_set.map(|(_, n)| *n).collect()
        };
        let mut sets: Vec<Vec<usize>> = sets.map(set).collect();
        sets.retain(|kept| must.iter().all(|n| kept.contains(n)));
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
            let Some((keep, new)) = self.group(&kept) else {
                continue;
            };
            let mut occupancy = Occupancy::empty(self.gpu);
            let stay = kept.iter().map(|n| &self.standing[*n]);
            occupancy
                .occupants
                .extend(stay.map(|one| Occupant::new(one.profile_id, one.placement)));
            if let Some((cost, placements)) = self.place(&occupancy, &new, 0)? {
                if best.as_ref().is_some_and(|(_, least, _)| cost >= *least) {
                    continue;
                }
                let create = new.iter().zip(placements).map(|(one, at)| NewInstance {
                    profile_id: one.profile.id,
                    placement: at,
                    parts: one.parts.clone(),
                });
                let goes = |n: &usize| !kept.contains(n);
                let plan = LayoutPlan {
                    destroy: (0..self.standing.len()).filter(goes).collect(),
                    create: create.collect(),
                    keep,
                };
                best = Some((size, cost, plan));
            }
        }
        Ok(best.map(|(.., plan)| plan))
    }

    /// Puts the wanted compute instances beside those of the kept instances, and the rest into new ones. Returns none
    /// where the kept have too many, or one of them stays empty.
    fn group(&self, kept: &[usize]) -> Option<(Missing, Vec<New<'a>>)> {
        let (mut keep, mut new) = (BTreeMap::new(), Vec::new());
        for n in kept {
            keep.insert(*n, Vec::new());
        }
        for (id, sizes) in self.wanted {
            let profile = self.gpu.profile(*id)?;
            let mut left = parts(sizes);
            let of_profile = |n: &&usize| self.standing[**n].profile_id == *id;
            let here: Vec<usize> = kept.iter().filter(of_profile).copied().collect();
            for n in &here {
                if !take(&mut left, &self.standing[*n].parts) {
                    return None;
                }
            }
            left.sort_by_key(|part| std::cmp::Reverse(*part));
            let mut made: Vec<New<'a>> = Vec::new();
            for part in left {
                let has_room = |n: &usize, more: &[Part]| {
                    let there = &self.standing[*n];
                    let more = [more, &[part]].concat();
                    there.has_room(&more) && holds(profile, &[&there.parts[..], &more].concat())
                };
                // An empty one first: it goes if it stays empty.
                let is_empty = |n: &usize| self.standing[*n].parts.is_empty() && keep[n].is_empty();
                let with_room = || here.iter().filter(|n| has_room(n, &keep[*n]));
                let found = with_room()
                    .find(|n| is_empty(n))
                    .or_else(|| with_room().next());
                if let Some(n) = found {
                    keep.get_mut(n)?.push(part);
                    continue;
                }
                let has_room =
                    |one: &&mut New<'_>| holds(profile, &[&one.parts[..], &[part]].concat());
                match made.iter_mut().find(has_room) {
                    Some(one) => one.parts.push(part),
                    None if holds(profile, &[part]) => made.push(New {
                        profile,
                        parts: vec![part],
                    }),
                    None => return None,
                }
            }
            new.extend(made);
        }
        // The largest first: they have the fewest places.
        new.sort_by_key(|one| std::cmp::Reverse((one.profile.memory_slices(), one.profile.id)));
        let is_empty =
            |(n, more): (&usize, &Vec<Part>)| self.standing[*n].parts.is_empty() && more.is_empty();
        (!keep.iter().any(is_empty)).then_some((keep, new))
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
    parts: Vec<Part>,
}

fn parts(sizes: &[u32]) -> Vec<Part> {
    sizes.iter().map(|slices| Part::of(*slices)).collect()
}

/// Takes each of `there` out of the wanted ones. Returns false if one is not among them.
fn take(wanted: &mut Vec<Part>, there: &[Part]) -> bool {
    there.iter().all(|part| {
        let at = wanted.iter().position(|wanted| part.is_like(wanted));
        at.map(|at| wanted.swap_remove(at)).is_some()
    })
}

/// Returns whether an instance holds these compute instances, which are created the largest first.
fn holds(profile: &Profile, parts: &[Part]) -> bool {
    let slices = profile.compute_slices;
    let sum: u32 = parts.iter().map(|part| part.slices).sum();
    parts.iter().all(|part| is_part(slices, part.slices)) && sum <= slices
}

/// Returns whether a compute instance of this size exists in an instance with these compute slices.
pub fn is_part(slices: u32, part: u32) -> bool {
    part == slices
        || part == 1
        || [(3, 2), (4, 2), (7, 2), (7, 3), (7, 4)].contains(&(slices, part))
}
