//! The values that the searches of this room exchange, and return to `lease`.

use super::occupancy::Slot;
use crate::model::{Gpu, GpuUuid, Placement, Profile};

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
        Slot {
            gpu: self.gpu.uuid.clone(),
            profile_id: self.profile.id,
            placement: self.placement,
        }
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
        self.excluded.iter().all(|(uuid, _)| *uuid != gpu.uuid)
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

/// The slot of one slice, with the names that people know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The UUID of the GPU.
    pub gpu_uuid: GpuUuid,
    /// The driver's index of the GPU.
    pub gpu_index: u32,
    /// The name of the profile.
    pub profile: String,
    /// The memory slices of the slot.
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
