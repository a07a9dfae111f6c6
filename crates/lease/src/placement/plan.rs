//! The values that the searches of this room exchange, and return to `lease`.

use super::occupancy::Slot;
use crate::model::{Gpu, Placement, Profile};

/// A chosen slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a> {
    pub gpu: &'a Gpu,
    pub profile: &'a Profile,
    pub placement: Placement,
    /// Idle slices of the GPU that runmig destroys first. Empty where the slot holds an idle slice of the
    /// profile, which runmig hands out as it is.
    pub evicts: Vec<Placement>,
}

impl Decision<'_> {
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
    pub slot: Slot,
    /// The number of containers to restart: containers of a pod may share a slice.
    pub containers: usize,
    /// GPUs that rules exclude for them, as in `Constraints`.
    pub excluded: Vec<(String, String)>,
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
    pub sites: Vec<Site>,
    pub moves: Vec<Move>,
}

/// The slot of one slice, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub gpu_uuid: String,
    pub gpu_index: u32,
    pub profile: String,
    pub placement: Placement,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The index of the movable slice.
    pub which: usize,
    pub profile: String,
    pub from_gpu: u32,
    pub from: Placement,
    pub to_gpu: u32,
    pub to: Placement,
}

/// The result of a search for moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchResult {
    /// The fewest moves. Without moves the request fits as it is.
    Plan(DefragPlan),
    /// No move of any slices makes room.
    Impossible,
    /// Restarts of up to so many containers make no room. The search gave up on more.
    Beyond(usize),
}

/// The steps of a long search, which takes some tens of milliseconds.
pub const MAX_STEPS: u32 = 200_000;

/// A profile on a GPU that an earlier request waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub gpu: String,
    pub profile_id: u32,
}
