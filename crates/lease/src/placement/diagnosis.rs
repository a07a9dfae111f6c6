//! The obstacle of a request that gets no slot.

use super::gpu_obstacle::GpuObstacle;
use super::occupancy::{Occupancy, Occupant, Slot};
use super::plan::Constraints;
use super::rejection::{Exhaustion, InTheWay, LeftOut, Obstacle, Shortage};
use crate::model::{Gpu, MigMode, Placement, Profile, Snapshot};
use crate::request::Slice;
use std::cmp::Reverse;

fn left_out(snapshot: &Snapshot, constraints: &Constraints<'_>) -> LeftOut {
    let on = snapshot.gpus.iter().filter(|g| g.mig == MigMode::Enabled);
    let why = |gpu: &Gpu| Some((gpu.index, constraints.exclusion(gpu)?));
    let unreadable = snapshot.unreadable.iter();
    LeftOut {
        excluded: on.filter_map(why).collect(),
        unreadable: unreadable.map(|(_, error)| error.clone()).collect(),
    }
}

/// Returns the GPUs that a request could use but for what closes them now.
pub(crate) fn closed<'a>(snapshot: &'a Snapshot, constraints: &Constraints<'_>) -> Vec<&'a Gpu> {
    let is_closed = |gpu: &&Gpu| constraints.exclusion(gpu).is_some_and(|why| why.may_pass());
    let on = snapshot.gpus.iter().filter(|g| g.mig == MigMode::Enabled);
    on.filter(is_closed).collect()
}

/// Diagnoses a machine without a usable GPU.
pub(crate) fn no_gpu(snapshot: &Snapshot, constraints: &Constraints<'_>) -> Obstacle {
    let mut left_out = left_out(snapshot, constraints);
    let with = |mode: MigMode| snapshot.gpus.iter().filter(move |g| g.mig == mode);
    if with(MigMode::Enabled).next().is_some() {
        return Obstacle::GpusExcluded(left_out);
    }
    let gpus: Vec<u32> = with(MigMode::Disabled).map(|g| g.index).collect();
    if gpus.is_empty() {
        return Obstacle::NoMigGpu {
            gpus: snapshot.gpus.len(),
            left_out,
        };
    }
    let unfit = |gpu: &Gpu| {
        let why = constraints.unfit.iter().find(|(uuid, _)| *uuid == gpu.uuid);
        why.map(|(_, why)| (gpu.index, GpuObstacle::Unfit(why.clone())))
    };
    let held = with(MigMode::Disabled).filter_map(unfit);
    left_out.excluded.extend(held);
    let is_pending = |g: &&Gpu| g.mig_pending == Some(MigMode::Enabled);
    Obstacle::MigOff {
        gpus,
        pending: with(MigMode::Disabled)
            .filter(is_pending)
            .map(|g| g.index)
            .collect(),
        left_out,
    }
}

/// Diagnoses GPUs none of which offers what a request stands for.
pub(crate) fn no_profile(
    gpus: &[&Gpu],
    request: &Slice,
    constraints: &Constraints<'_>,
) -> Obstacle {
    let needed = constraints.min_compute;
    let mut known: Vec<&Profile> = Vec::new();
    for profile in gpus.iter().flat_map(|g| &g.profiles) {
        let is_denied = constraints.denied_profiles.contains(&profile.name);
        if !is_denied && !known.iter().any(|k| k.name == profile.name) {
            known.push(profile);
        }
    }
    match request {
        Slice::Profile(name) => {
            if let Some(few) = known.iter().find(|p| *p.name == *name) {
                let has = few.compute_slices;
                return Obstacle::FewComputeSlices { has, needed };
            }
            let length = name.to_string().len();
            known.sort_by_key(|p| {
                (
                    p.compute_slices.abs_diff(name.gpu_slices),
                    p.gigabytes().abs_diff(name.gigabytes),
                    p.name.len().abs_diff(length),
                )
            });
            Obstacle::UnknownProfile {
                offered: known.iter().map(|p| p.name.clone()).collect(),
            }
        }
        Slice::Memory(_) => {
            let by_size = |p: &&&Profile| (p.memory_mib, p.compute_slices);
            let largest = known.iter().max_by_key(by_size);
            Obstacle::TooMuchMemory {
                needed_compute: needed,
                is_restricted: !constraints.denied_profiles.is_empty(),
                largest: largest.copied().cloned(),
            }
        }
    }
}

/// Diagnoses GPUs that offer the profile and have no slot for it.
pub(crate) fn no_slot(
    snapshot: &Snapshot,
    fitting: &[(&Gpu, &Profile)],
    reserved: &[Slot],
    constraints: &Constraints<'_>,
) -> Obstacle {
    let mut shortage = Shortage {
        profile: first_profile(fitting),
        gpus: fitting.len(),
        needed: u32::MAX,
        left_out: left_out(snapshot, constraints),
        ..Shortage::default()
    };
    for (gpu, profile) in fitting {
        let occupancy = constraints.occupancy(gpu, reserved);
        let free = occupancy.free_slices();
        shortage.free_slices += free;
        shortage.total_slices += occupancy.total_slices();
        shortage.most_free = shortage.most_free.max(free);
        shortage.needed = shortage.needed.min(profile.memory_slices());
        shortage.quarantined += constraints.quarantined_on(gpu);
        let slot = |l: &Occupant| Slot::new(&gpu.uuid, l.profile_id, l.at);
        let ends = |l: &Occupant| constraints.ours.iter().any(|r| r.is_at(&gpu.uuid, l.at));
        let going = in_the_way(&occupancy, profile, ends);
        if !going.is_empty() {
            shortage.in_the_way.push(InTheWay {
                gpu: gpu.index,
                slots: going.iter().map(slot).collect(),
                names: Vec::new(),
                ends: going.iter().all(ends),
            });
        }
        if free >= profile.memory_slices()
            && let Some(what) = occupancy.exhausted(profile, occupancy.taken())
        {
            shortage.exhausted.push(Exhaustion {
                gpu: gpu.index,
                profile: profile.name.clone(),
                what,
            });
        }
    }
    let least = |one: &InTheWay| (!one.ends, one.slots.len(), one.gpu);
    shortage.in_the_way.sort_by_key(least);
    Obstacle::NoSlot(Box::new(shortage))
}

/// Returns the profile that a request stands for on the first GPU that offers it.
pub(super) fn first_profile(fitting: &[(&Gpu, &Profile)]) -> String {
    fitting[0].1.name.clone()
}

/// Returns the instances whose end would make room for a profile on a GPU, by their places: the fewest, and first those that end
/// one day. Empty if no end of others makes room. `ends`: whether an occupant ends without an administrator.
fn in_the_way(
    occupancy: &Occupancy<'_>,
    profile: &Profile,
    ends: impl Fn(&Occupant) -> bool,
) -> Vec<Occupant> {
    let rank = |l: &Occupant| (!ends(l), Reverse(l.at.size), l.at.start);
    let of_place = |at: &Placement| {
        let none = std::iter::empty();
        let mut going = occupancy.in_the_way(profile, *at, none, occupancy.taken(), rank)?;
        going.sort_by_key(|l| l.at.start);
        Some(going)
    };
    let found = profile.placements.iter().filter_map(of_place);
    let cost = |going: &Vec<Occupant>| {
        let stays = going.iter().filter(|l| !ends(l)).count();
        let size: u32 = going.iter().map(|l| l.at.size).sum();
        (stays, going.len(), size)
    };
    found.min_by_key(cost).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::tests::gpu;
    use proptest::prelude::*;
    use proptest::sample::Index;

    proptest! {
        /// Over random contents of a GPU the answer makes room, and no other set of occupants does so that has fewer
        /// which stay, or as many of these and fewer in all.
        #[test]
        fn names_fewest(
            asked in any::<Index>(),
            filling in prop::collection::vec((any::<Index>(), any::<Index>()), 0..12),
            foreign in any::<u8>(),
        ) {
            let gpu = gpu(0);
            let mut on = Occupancy::empty(&gpu);
            for (profile, place) in filling {
                let profile = profile.get(&gpu.profiles);
                let places: Vec<Placement> = on.places(profile).collect();
                if !places.is_empty() {
                    on = on.with(profile, *place.get(&places));
                }
            }
            let profile = asked.get(&gpu.profiles);
            let ends = |l: &Occupant| foreign >> l.at.start & 1 == 0;
            let has_room = |goes: &dyn Fn(&Occupant) -> bool| {
                let mut without = on.clone();
                without.occupants.retain(|l| !goes(l));
                without.places(profile).next().is_some()
            };
            let cost = |set: &[Occupant]| (set.iter().filter(|l| !ends(l)).count(), set.len());
            let sets = 0u32..1 << on.occupants.len();
            let members = |set: u32| -> Vec<Occupant> {
                let all = on.occupants.iter().enumerate();
                all.filter(|(n, _)| set >> n & 1 == 1).map(|(_, l)| *l).collect()
            };
            let enough = sets.map(members).filter(|set| has_room(&|l| set.contains(l)));
            let best = enough.map(|set| cost(&set)).min().unwrap();
            let found = in_the_way(&on, profile, ends);
            prop_assert!(has_room(&|l| found.contains(l)), "{found:?}");
            prop_assert_eq!(cost(&found), best);
        }
    }
}
