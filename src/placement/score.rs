//! What a choice costs those who come later: how much more of the free memory is of no use.
//!
//! The fragmentation gradient (docs/packing.md): F of a GPU is, over all its profiles, the free
//! memory slices that no still-free place of the profile covers. The cost of a place is what it adds
//! to F, and a share of what it adds to F as it will be on average when one slice has gone: of two
//! places that are as good now, the better is where the next one to leave leaves more.

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
}

impl<'r, 'a> Costs<'r, 'a> {
    pub fn of(room: &'r Room<'a>) -> Self {
        let free = room.free();
        Costs {
            room,
            free,
            before: potential(room, free, None),
        }
    }

    pub fn cost(&self, at: Placement) -> i64 {
        let new = slices(at);
        potential(self.room, self.free & !new, Some(new)) - self.before
    }
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
