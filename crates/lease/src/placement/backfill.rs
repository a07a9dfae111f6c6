//! Backfill: a later request takes only what no earlier request, still queued, could ever use.
//!
//! The ends of the running containers are unknown. So even a small slice may delay a queued request, if it
//! overlaps a slot that the request could use. Instances that runmig did not make count as permanent.

use super::occupancy::{Occupancy, Parts, parts};
use super::plan::{Constraints, Reservation, is_on};
use crate::model::{Gpu, Placement, Profile, Snapshot};

/// Returns every profile on every GPU that could ever satisfy a request, by the rules and by the driver.
pub(crate) fn could_use(snapshot: &Snapshot, constraints: &Constraints<'_>) -> Vec<Reservation> {
    let mut all = Vec::new();
    for (gpu, profile) in candidates(snapshot, constraints) {
        let one = Reservation {
            gpu: gpu.uuid.clone(),
            profile_id: profile.id,
        };
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// Says whether the reservations of earlier requests alone block a request. Then the driver has no answer
/// that helps.
pub(crate) fn is_blocked(snapshot: &Snapshot, constraints: &Constraints<'_>) -> bool {
    let permits = |(gpu, profile): (&Gpu, &Profile)| {
        let backfill = Backfill::on(gpu, constraints);
        let mut places = profile.placements.iter();
        places.any(|at| backfill.permits(profile, *at))
    };
    !constraints.blockers.is_empty() && !candidates(snapshot, constraints).into_iter().any(permits)
}

fn candidates<'a>(
    snapshot: &'a Snapshot,
    constraints: &Constraints<'_>,
) -> Vec<(&'a Gpu, &'a Profile)> {
    let gpus = snapshot.gpus.iter().filter(|g| is_on(g));
    gpus.filter(|gpu| !constraints.excludes_for_good(gpu))
        .flat_map(|gpu| {
            let profiles = constraints.alternatives.iter();
            profiles.filter_map(move |slice| Some((gpu, constraints.profile_on(gpu, slice)?)))
        })
        .collect()
}

/// The slots of one GPU that earlier requests could use after all our own instances are gone.
pub(crate) struct Backfill<'a> {
    gpu: &'a Gpu,
    places: Vec<(&'a Profile, Placement)>,
}

impl<'a> Backfill<'a> {
    pub(crate) fn on(gpu: &'a Gpu, constraints: &Constraints<'_>) -> Self {
        let here = constraints.blockers.iter().filter(|a| a.gpu == gpu.uuid);
        let mut awaited: Vec<&Profile> = here.filter_map(|a| gpu.profile(a.profile_id)).collect();
        awaited.dedup_by_key(|p| p.id);
        let mut places = Vec::new();
        if !awaited.is_empty() {
            let stays = Occupancy::foreign(gpu, constraints.ours);
            let each = awaited.into_iter();
            places.extend(each.flat_map(|p| stays.places(p).map(move |at| (p, at))));
        }
        Backfill { gpu, places }
    }

    /// Says whether a slice there delays no earlier request.
    pub(crate) fn permits(&self, profile: &Profile, at: Placement) -> bool {
        self.places.iter().all(|(awaited, place)| {
            !place.overlaps(at) && self.parts_are_left(profile, awaited, *place)
        })
    }

    /// Says whether the awaited slice keeps its compute slices and engines whatever lies beside it. Then only
    /// an overlap can delay it.
    fn parts_are_left(&self, profile: &Profile, awaited: &Profile, place: Placement) -> bool {
        let (most, limit) = (most_beside(self.gpu, place), Occupancy::limit(self.gpu));
        let kinds = parts(profile).into_iter().zip(parts(awaited));
        let mut kinds = kinds.zip(most.into_iter().zip(limit));
        kinds.all(|((takes, needs), (most, limit))| {
            takes == 0 || needs == 0 || needs + most <= limit
        })
    }
}

/// Returns the most of each part that slices can use without overlapping a placement.
fn most_beside(gpu: &Gpu, place: Placement) -> Parts {
    let end = Occupancy::empty(gpu).total_slices() as usize;
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
