//! The constraints of a request, and the GPUs and profiles that they leave.

use super::occupancy::{Occupancy, Slot};
use super::plan::Reservation;
use crate::model::{Gpu, MigMode, Profile, Snapshot};
use crate::request::Slice;

/// The wishes of a container, and the obstacles besides other slices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Constraints<'a> {
    /// The first that can be had.
    pub alternatives: &'a [Slice],
    /// The least number of compute slices; 0 where any will do.
    pub min_compute: u32,
    /// GPUs that a rule keeps from this container, by UUID, and the rule in words.
    pub excluded: &'a [(String, String)],
    /// Profiles that a rule keeps from this container, by name.
    pub denied_profiles: &'a [String],
    /// The reservations of earlier requests.
    pub blockers: &'a [Reservation],
    /// Our slots on the GPUs, which go one day: with `blockers`.
    pub ours: &'a [Slot],
    /// GPUs where the container has a slice already, by UUID: taken where no other has room.
    pub own_gpus: &'a [String],
    /// Slices that nobody has and that are only kept for the next: free, but dearer than free.
    pub idle: &'a [Slot],
    /// Those of them that go for another slice of the container.
    pub evicted: &'a [Slot],
    /// The reserved slots that could not be given back.
    pub quarantined: &'a [Slot],
}

impl<'a> Constraints<'a> {
    pub fn one(slice: &'a Slice) -> Self {
        Constraints {
            alternatives: std::slice::from_ref(slice),
            ..Constraints::default()
        }
    }

    /// As if nobody had come before.
    pub(super) fn alone(&self) -> Self {
        Constraints {
            blockers: &[],
            ours: &[],
            ..*self
        }
    }

    pub(super) fn occupancy<'g>(&self, gpu: &'g Gpu, reserved: &[Slot]) -> Occupancy<'g> {
        Occupancy::without(gpu, self.evicted, reserved, self.idle)
    }

    pub(super) fn exclusion(&self, gpu: &Gpu) -> Option<&str> {
        let rule = self.excluded.iter().find(|(uuid, _)| *uuid == gpu.uuid);
        rule.map(|(_, rule)| rule.as_str())
    }

    pub(super) fn excludes(&self, gpu: &Gpu) -> bool {
        self.exclusion(gpu).is_some()
    }

    /// Returns a request's profile on one GPU: the profile of that name, or the smallest that has
    /// the memory, then the fewest compute slices, then the plain one (`1g.24gb` before
    /// `1g.24gb-me`).
    pub(super) fn profile_on<'g>(&self, gpu: &'g Gpu, request: &Slice) -> Option<&'g Profile> {
        let mut allowed = gpu.profiles.iter().filter(|p| {
            p.compute_slices >= self.min_compute && !self.denied_profiles.contains(&p.name)
        });
        match request {
            Slice::Profile(name) => allowed.find(|p| *p.name == *name),
            Slice::Memory(bytes) => allowed
                .filter(|p| u128::from(p.memory_mib) << 20 >= u128::from(*bytes))
                .min_by_key(|p| (p.memory_mib, p.compute_slices, p.name.contains(['+', '-']))),
        }
    }
}

/// Whether its MIG mode is on.
pub fn is_on(gpu: &Gpu) -> bool {
    gpu.mig == MigMode::Enabled
}

/// GPUs with MIG on that no rule keeps from it.
pub fn usable<'a>(snapshot: &'a Snapshot, constraints: &Constraints<'_>) -> Vec<&'a Gpu> {
    let gpus = snapshot.gpus.iter();
    gpus.filter(|g| is_on(g) && !constraints.excludes(g))
        .collect()
}

/// Returns a request's profile on each GPU that has one.
pub fn fitting<'a>(
    usable: &[&'a Gpu],
    slice: &Slice,
    constraints: &Constraints<'_>,
) -> Vec<(&'a Gpu, &'a Profile)> {
    usable
        .iter()
        .filter_map(|gpu| Some((*gpu, constraints.profile_on(gpu, slice)?)))
        .collect()
}
