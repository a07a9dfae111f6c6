//! What a choice costs those who come later: the fragmentation gradient.

use super::room::{Room, mask};
use crate::model::Gpu;

/// Over all profiles, the free memory slices that no still-free place of the profile covers.
pub fn fragmentation(gpu: &Gpu, room: &Room<'_>) -> i64 {
    let free = room.free_mask();
    gpu.profiles
        .iter()
        .map(|profile| {
            let covered = profile
                .placements
                .iter()
                .map(|p| mask(p.start, p.size))
                .filter(|place| place & !free == 0)
                .fold(0, |all, place| all | place);
            i64::from((free & !covered).count_ones())
        })
        .sum()
}
