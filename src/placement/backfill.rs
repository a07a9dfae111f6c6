//! Who may pass those who wait for room: only who takes nothing that they could ever use.
//!
//! When the containers that run now will end is not known, so what is free today and in the way of a
//! place that somebody waits for would delay them, however small it is. What stays are instances
//! that are not ours: nobody waits for an administrator.

use super::constraints::{Wanted, is_on};
use super::occupancy::{Parts, Room, parts};
use super::plan::Awaited;
use crate::model::{Gpu, Placement, Profile, Snapshot};

/// Everything that could ever satisfy a request, by the rules and by what the driver offers.
pub fn could_use(snapshot: &Snapshot, wanted: &Wanted<'_>) -> Vec<Awaited> {
    let mut all = Vec::new();
    for (gpu, profile) in candidates(snapshot, wanted) {
        let one = Awaited {
            gpu: gpu.uuid.clone(),
            profile_id: profile.id,
        };
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// Whether nothing but those who came before has to go on: then there is nothing to ask the driver.
pub fn is_held_up(snapshot: &Snapshot, wanted: &Wanted<'_>) -> bool {
    let lets = |(gpu, profile): (&Gpu, &Profile)| {
        let ahead = Ahead::on(gpu, wanted);
        let mut places = profile.placements.iter();
        places.any(|at| ahead.lets(profile, *at))
    };
    !wanted.ahead.is_empty() && !candidates(snapshot, wanted).into_iter().any(lets)
}

fn candidates<'a>(snapshot: &'a Snapshot, wanted: &Wanted<'_>) -> Vec<(&'a Gpu, &'a Profile)> {
    let gpus = snapshot.gpus.iter().filter(|g| is_on(g));
    gpus.filter(|gpu| !wanted.excludes(gpu))
        .flat_map(|gpu| {
            let profiles = wanted.alternatives.iter();
            profiles.filter_map(move |slice| Some((gpu, wanted.profile_on(gpu, slice)?)))
        })
        .collect()
}

/// Where those who came before could go on one GPU, once all that is ours has gone.
pub struct Ahead<'a> {
    gpu: &'a Gpu,
    places: Vec<(&'a Profile, Placement)>,
}

impl<'a> Ahead<'a> {
    pub fn on(gpu: &'a Gpu, wanted: &Wanted<'_>) -> Self {
        let here = wanted.ahead.iter().filter(|a| a.gpu == gpu.uuid);
        let mut awaited = here
            .filter_map(|a| gpu.profile(a.profile_id))
            .collect::<Vec<_>>();
        awaited.dedup_by_key(|p| p.id);
        if awaited.is_empty() {
            return Ahead {
                gpu,
                places: Vec::new(),
            };
        }
        let stays = Room::of_others(gpu, wanted.ours);
        let places = awaited
            .into_iter()
            .flat_map(|p| stays.places(p).map(move |at| (p, at)))
            .collect();
        Ahead { gpu, places }
    }

    /// Whether a slice there is in nobody's way.
    pub fn lets(&self, profile: &Profile, at: Placement) -> bool {
        self.places.iter().all(|(awaited, place)| {
            !place.overlaps(at) && self.parts_are_left(profile, awaited, *place)
        })
    }

    /// Whether the awaited slice has its compute slices and engines at its place whatever lies beside
    /// it: then it is the memory alone that can stand in its way.
    fn parts_are_left(&self, profile: &Profile, awaited: &Profile, place: Placement) -> bool {
        let (beside, limit) = (most_beside(self.gpu, place), Room::limit(self.gpu));
        let kinds = parts(profile).into_iter().zip(parts(awaited));
        kinds
            .zip(beside.into_iter().zip(limit))
            .all(|((takes, needs), (beside, limit))| {
                takes == 0 || needs == 0 || needs + beside <= limit
            })
    }
}

/// Of each part, the most that slices can take up which do not overlap a place.
fn most_beside(gpu: &Gpu, place: Placement) -> Parts {
    let end = Room::empty(gpu).total_slices() as usize;
    let mut from = vec![Parts::default(); end + 1];
    for start in (0..end).rev() {
        from[start] = from[start + 1];
        for profile in &gpu.profiles {
            let here = Placement {
                start: start as u32,
                size: profile.memory_slices(),
            };
            if here.size == 0 || here.overlaps(place) || !profile.placements.contains(&here) {
                continue;
            }
            let rest = from[start + here.size as usize];
            let more = parts(profile).into_iter().zip(rest);
            for (most, (own, rest)) in from[start].iter_mut().zip(more) {
                *most = (own + rest).max(*most);
            }
        }
    }
    from[0]
}

#[cfg(test)]
mod tests;
