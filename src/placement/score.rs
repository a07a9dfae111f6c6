//! What a choice costs those who come later: how much more of the free memory is of no use.
//!
//! The fragmentation gradient (docs/packing.md): F of a GPU is, over all its profiles, the free
//! memory slices that no still-free place of the profile covers. The cost of a place is what it adds
//! to F, and a share of what it adds to F as it will be on average when one slice has gone: of two
//! places that are as good now, the better is where the next one to leave leaves more.
//!
//! Between models, a slice is not the same: there what is taken counts too, and all of it by how much
//! memory that is, and how large a GPU it is on. What is left of a small one serves fewer.

use super::room::{Room, Slices, slices};
use crate::model::Placement;

/// Costs are whole numbers: a memory slice that one profile loses is this much.
pub const SLICE: i64 = 840 * NOW;
/// How the two parts are weighed; 840 can be divided by each number of slices up to 8.
const NOW: i64 = 10;
const NEXT: i64 = 3;

/// Costs of places on one GPU.
pub struct Costs<'r, 'a> {
    room: &'r Room<'a>,
    free: Slices,
    before: i64,
    /// Of a slice that is lost to one of the profiles.
    worth: i64,
}

impl<'r, 'a> Costs<'r, 'a> {
    pub fn of(room: &'r Room<'a>) -> Self {
        let free = room.free();
        Costs {
            room,
            free,
            before: potential(room, free, None),
            worth: worth(room),
        }
    }

    /// To be compared with places on any GPU. Each idle slice that has to go for it is worth as much
    /// as a memory slice that one profile loses.
    pub fn in_all(&self, at: Placement, evicts: usize) -> i64 {
        let profiles = self.room.gpu.profiles.len() as i64;
        let taken = i64::from(at.size) * profiles * SLICE * 3 / 2;
        let lost = taken + self.cost(at) + evicts as i64 * SLICE;
        lost.saturating_mul(self.worth)
    }

    pub fn cost(&self, at: Placement) -> i64 {
        let new = slices(at);
        potential(self.room, self.free & !new, Some(new)) - self.before
    }
}

fn worth(room: &Room<'_>) -> i64 {
    let profiles = &room.gpu.profiles;
    let memory = profiles.iter().map(|p| p.memory_mib).max().unwrap_or(0);
    let slices = u64::from(room.total_slices().max(1));
    // In thousandths, so that the division leaves enough.
    let worth =
        (memory / slices).saturating_mul(memory.isqrt() * 1000) / (profiles.len().max(1) as u64);
    worth.try_into().unwrap_or(i64::MAX)
}

fn potential(room: &Room<'_>, free: Slices, new: Option<Slices>) -> i64 {
    let lost = |free| i64::from(room.uncovered(free));
    let (mut leaving, mut sum) = (0, 0);
    for one in room.taken().map(|l| l.slices).chain(new) {
        leaving += 1;
        sum += lost(free | one);
    }
    let now = lost(free);
    let next = match leaving {
        0 => 840 * now,
        n => 840 * sum / n,
    };
    NOW * 840 * now + NEXT * next
}
