//! The values that the searches of this room exchange, and return to `lease`.

use super::gpu_obstacle::GpuObstacle;
use super::occupancy::{Occupancy, Slot};
use crate::model::{Gpu, GpuUuid, MigMode, Placement, Profile, Snapshot};
use crate::request::{Alternative, Slice, Slices};
use serde::Serialize;

/// A chosen slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a> {
    /// The GPU of the slot.
    pub gpu: &'a Gpu,
    /// The profile of the slice on this GPU.
    pub profile: &'a Profile,
    /// The memory slices of the slot.
    pub placement: Placement,
    /// Idle slices of the GPU that runmig destroys first. Empty where the slot holds an idle slice of the
    /// profile, which runmig hands out as it is.
    pub evicts: Vec<Placement>,
}

impl Decision<'_> {
    /// Returns the chosen slot without the evictions.
    pub fn slot(&self) -> Slot {
        Slot::new(&self.gpu.uuid, self.profile.id, self.placement)
    }
}

impl From<&Decision<'_>> for Site {
    fn from(found: &Decision<'_>) -> Site {
        Site {
            gpu_uuid: found.gpu.uuid.clone(),
            gpu_index: found.gpu.index,
            profile: found.profile.name.clone(),
            placement: found.placement,
        }
    }
}

/// A slice that may get another slot when its containers restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movable {
    /// The current slot of the slice.
    pub slot: Slot,
    /// The number of containers to restart. Containers of a pod may share a slice.
    pub containers: usize,
    /// UUIDs of the GPUs that rules exclude for these containers, with the rule as in `Constraints`.
    pub excluded: Vec<(GpuUuid, String)>,
}

impl Movable {
    pub(super) fn is_like(&self, other: &Movable) -> bool {
        (self.containers, &self.excluded) == (other.containers, &other.excluded)
    }

    pub(super) fn may_use(&self, gpu: &Gpu) -> bool {
        gpu.closed.is_none() && self.excluded.iter().all(|(uuid, _)| *uuid != gpu.uuid)
    }
}

/// Moves that make room for a request, and the slots of the request after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefragPlan {
    /// The slots of the request after the moves.
    pub sites: Vec<Site>,
    /// The moves. All these slices go before the request gets its slots.
    pub moves: Vec<Move>,
}

/// The slot of one slice, with the names that people know, as `migctl explain -o json` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// The MIG profile.
    pub profile: String,
    /// The GPU's UUID.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: GpuUuid,
    /// The GPU's index in NVML, counted from 0.
    pub gpu_index: u32,
    /// The memory slices that it would take.
    #[serde(rename = "migPlacement")]
    pub placement: Placement,
}

/// One move of a slice to another slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The index of the slice in the list of movable slices.
    pub which: usize,
    /// The name of the profile.
    pub profile: String,
    /// The index of the GPU that the slice leaves.
    pub from_gpu: u32,
    /// The placement that the slice leaves.
    pub from: Placement,
    /// The index of the GPU that gets the slice.
    pub to_gpu: u32,
    /// The placement that the slice gets.
    pub to: Placement,
}

/// The result of a search for moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchResult {
    /// The fewest moves. Without moves the request fits as it is.
    Plan(DefragPlan),
    /// No move of any slices makes room.
    Impossible,
    /// The machine has no slice that can be moved at all.
    Immovable,
    /// Restarts of up to this number of containers make no room. The search gave up on more.
    Beyond(usize),
}

/// The steps after which a search for moves gives up. They take some tens of milliseconds.
pub const MAX_STEPS: u32 = 200_000;

/// A profile on a GPU that an earlier request waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The UUID of the GPU.
    pub gpu: GpuUuid,
    /// The id of the profile.
    pub profile_id: u32,
}

/// The slices that a request asks for, and everything but occupied slots that restricts their choice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Constraints<'a> {
    /// The alternatives in order of preference. The first that fits is chosen.
    pub alternatives: &'a [Slice],
    /// The least number of compute slices, or 0.
    pub min_compute: u32,
    /// UUIDs of GPUs that a rule excludes, with the rule as its author worded it.
    pub excluded: &'a [(GpuUuid, String)],
    /// UUIDs of GPUs that cannot hold the request, with the reason.
    pub unfit: &'a [(GpuUuid, String)],
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
        Constraints::default().of(slice)
    }

    /// Returns the constraints of one slice of a request.
    pub(crate) fn of(&self, slice: &'a Slice) -> Self {
        Constraints {
            alternatives: std::slice::from_ref(slice),
            ..*self
        }
    }

    pub(super) fn occupancy<'g>(&self, gpu: &'g Gpu, reserved: &[Slot]) -> Occupancy<'g> {
        Occupancy::without(gpu, self.evicted, reserved, self.idle)
    }

    /// Returns the number of a GPU's memory slices whose instances could not be released.
    pub(super) fn quarantined_on(&self, gpu: &Gpu) -> u32 {
        let here = self.quarantined.iter().filter(|slot| slot.gpu == gpu.uuid);
        here.map(|slot| slot.placement.size).sum()
    }

    pub(super) fn exclusion(&self, gpu: &Gpu) -> Option<GpuObstacle> {
        let of = |list: &[(GpuUuid, String)]| {
            let found = list.iter().find(|(uuid, _)| *uuid == gpu.uuid);
            found.map(|(_, why)| why.clone())
        };
        let rule = of(self.excluded).map(GpuObstacle::Excluded);
        rule.or_else(|| of(self.unfit).map(GpuObstacle::Unfit))
            .or_else(|| gpu.ends_mig().then_some(GpuObstacle::EndsMig))
            .or_else(|| gpu.shut().map(GpuObstacle::Closed))
    }

    pub(super) fn excludes(&self, gpu: &Gpu) -> bool {
        self.exclusion(gpu).is_some()
    }

    /// Says whether a GPU is left out for good: one that gives nothing new may do so again.
    pub(super) fn excludes_for_good(&self, gpu: &Gpu) -> bool {
        self.exclusion(gpu).is_some_and(|why| !why.may_pass())
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
    let fitting = usable.iter();
    let fitting = fitting.filter_map(|gpu| Some((*gpu, constraints.profile_on(gpu, slice)?)));
    fitting.collect()
}

/// The part of a request for slices that the policy admits, and what keeps places from it.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    pub alternatives: Vec<Alternative>,
    /// The slices of all alternatives.
    pub slices: Vec<Slice>,
    pub min_compute: u32,
    /// GPUs that a rule keeps from the requester, by UUID, with the rule in words.
    pub excluded: Vec<(GpuUuid, String)>,
    pub denied_profiles: Vec<String>,
    /// The places of instances that end one day.
    pub ours: Vec<Slot>,
    /// What earlier requests could use.
    pub blockers: Vec<Reservation>,
    /// GPUs that it cannot have now, with the reason.
    pub unfit: Vec<(GpuUuid, String)>,
}

impl Admitted {
    pub(crate) fn wanted(&self) -> Constraints<'_> {
        Constraints {
            alternatives: &self.slices,
            min_compute: self.min_compute,
            excluded: &self.excluded,
            denied_profiles: &self.denied_profiles,
            ours: &self.ours,
            blockers: &self.blockers,
            unfit: &self.unfit,
            ..Constraints::default()
        }
    }

    /// Returns the request for which this is admitted.
    pub(crate) fn asked(&self) -> Slices {
        Slices {
            alternatives: self.alternatives.clone(),
            min_compute: self.min_compute,
        }
    }
}
