//! The values that the searches of this room hand to one another, and to `lease`.

use super::occupancy::Slot;
use crate::model::{Gpu, Placement, Profile};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a> {
    pub gpu: &'a Gpu,
    pub profile: &'a Profile,
    pub placement: Placement,
    /// Idle slices of that GPU that have to be destroyed first. If the place is just that of an idle
    /// slice of the profile, none: that one can be handed out as it is.
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

/// A slice that lies elsewhere after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movable {
    pub place: Slot,
    /// That have to be restarted for it: those of a pod may have it together.
    pub containers: usize,
    /// GPUs where they may not come again, as in `Constraints`.
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

/// The slots of the whole request, after the moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefragPlan {
    pub sites: Vec<Site>,
    pub moves: Vec<Move>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub gpu_uuid: String,
    pub gpu_index: u32,
    pub profile: String,
    pub placement: Placement,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Which of the movable ones.
    pub which: usize,
    pub profile: String,
    pub from_gpu: u32,
    pub from: Placement,
    pub to_gpu: u32,
    pub to: Placement,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchResult {
    /// Nothing has to move if `moves` is empty.
    Plan(DefragPlan),
    /// Not even if everything movable lay elsewhere.
    Impossible,
    /// It takes more moves than this, or cannot be done.
    Beyond(usize),
}

/// Steps of a search: some tens of milliseconds.
pub const MAX_STEPS: u32 = 200_000;

/// The reservation of an earlier request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub gpu: String,
    pub profile_id: u32,
}
