//! The constraints of a request, and the GPUs and profiles that they leave.

use super::occupancy::{Occupancy, Slot};
use super::plan::Reservation;
use crate::model::{Gpu, GpuUuid, MigMode, Profile, Snapshot};
use crate::request::Slice;

/// The reason for which a GPU gives no slice that its next reset would end.
const MIG_ENDS: &str = "its next reset switches MIG off; nvidia-smi -mig 1 keeps it on, and nvidia-smi --gpu-reset resets it";

/// The slices that a request asks for, and everything but occupied slots that restricts their choice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Constraints<'a> {
    /// The alternatives in order of preference. The first that fits is chosen.
    pub alternatives: &'a [Slice],
    /// The least number of compute slices, or 0.
    pub min_compute: u32,
    /// UUIDs of GPUs that a rule excludes, with the rule as its author worded it.
    pub excluded: &'a [(GpuUuid, String)],
    /// Names of profiles that a rule excludes.
    pub denied_profiles: &'a [String],
    /// Reservations of earlier requests.
    pub blockers: &'a [Reservation],
    /// Slots of runmig's own instances. Requests in `blockers` may use them after their release.
    pub ours: &'a [Slot],
    /// UUIDs of GPUs where the container has a slice already. Other GPUs are preferred.
    pub own_gpus: &'a [GpuUuid],
    /// Slots of idle slices. They count as free, at a higher cost.
    pub idle: &'a [Slot],
    /// Slots of idle slices that go for another slice of the same request.
    pub evicted: &'a [Slot],
    /// Slots of slices that runmig could not destroy.
    pub quarantined: &'a [Slot],
}

impl<'a> Constraints<'a> {
    /// Asks for one slice, without any other constraint.
    pub fn one(slice: &'a Slice) -> Self {
        Constraints {
            alternatives: std::slice::from_ref(slice),
            ..Constraints::default()
        }
    }

    /// Leaves out the earlier requests.
    pub(super) fn without_blockers(&self) -> Self {
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
        let rule = rule.map(|(_, rule)| rule.as_str());
        rule.or_else(|| gpu.ends_mig().then_some(MIG_ENDS))
    }

    pub(super) fn excludes(&self, gpu: &Gpu) -> bool {
        self.exclusion(gpu).is_some()
    }

    /// Returns the profile that a request stands for on one GPU: the one of that name, or the one with the
    /// least sufficient memory, then the fewest compute slices, then the plain one (`1g.24gb` before
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

/// Says whether MIG is on.
pub(super) fn is_on(gpu: &Gpu) -> bool {
    gpu.mig == MigMode::Enabled
}

/// Returns the GPUs in MIG mode that no rule excludes.
pub(crate) fn usable<'a>(snapshot: &'a Snapshot, constraints: &Constraints<'_>) -> Vec<&'a Gpu> {
    let gpus = snapshot.gpus.iter();
    gpus.filter(|g| is_on(g) && !constraints.excludes(g))
        .collect()
}

/// Returns the profile that a request stands for on each GPU that offers it.
pub(crate) fn fitting<'a>(
    usable: &[&'a Gpu],
    slice: &Slice,
    constraints: &Constraints<'_>,
) -> Vec<(&'a Gpu, &'a Profile)> {
    usable
        .iter()
        .filter_map(|gpu| Some((*gpu, constraints.profile_on(gpu, slice)?)))
        .collect()
}
