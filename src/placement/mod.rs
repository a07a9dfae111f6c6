//! Where a slice goes: a pure function of what the driver says and what is asked. No geometry is
//! built in, no file read.
//!
//! `room` says what fits where, `score` how much a choice would cost those who come later, `why`
//! what to tell who finds no room.

mod room;
mod score;
mod why;

pub use room::Reserved;
pub use why::NoRoom;

use crate::model::{Gpu, MigMode, Placement, Profile, Snapshot};
use crate::request::Slice;
use room::Room;
use std::cmp::Reverse;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a> {
    pub gpu: &'a Gpu,
    pub profile: &'a Profile,
    pub placement: Placement,
}

/// `reserved` is what the ledger has promised, whether the driver shows it yet or not.
pub fn choose<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Reserved],
    asked: &Slice,
) -> Result<Decision<'a>, NoRoom> {
    let usable: Vec<&Gpu> = snapshot
        .gpus
        .iter()
        .filter(|g| g.mig == MigMode::Enabled)
        .collect();
    if usable.is_empty() {
        return Err(why::no_gpu(snapshot));
    }
    let wanted: Vec<(&Gpu, &Profile)> = usable
        .iter()
        .filter_map(|gpu| Some((*gpu, profile_for(gpu, asked)?)))
        .collect();
    if wanted.is_empty() {
        return Err(why::no_profile(&usable, asked));
    }

    let mut best = None;
    for &(gpu, profile) in &wanted {
        let room = Room::new(gpu, reserved);
        let before = score::fragmentation(gpu, &room);
        for placement in room.places(profile) {
            let after = score::fragmentation(gpu, &room.with(profile, placement));
            let cost = after - before;
            let rank = (
                // An amount of memory may mean different profiles on different models.
                profile.memory_mib,
                cost,
                room.free_slices(),
                Reverse(placement.start),
                gpu.index,
            );
            if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                best = Some((
                    rank,
                    Decision {
                        gpu,
                        profile,
                        placement,
                    },
                ));
            }
        }
    }
    best.map(|(_, decision)| decision)
        .ok_or_else(|| why::full(&wanted, reserved, asked))
}

/// What a request means on one GPU: the profile of that name, or the smallest that has the memory,
/// then the fewest compute slices, then the plain one (`1g.24gb` before `1g.24gb-me`).
fn profile_for<'a>(gpu: &'a Gpu, asked: &Slice) -> Option<&'a Profile> {
    match asked {
        Slice::Profile(name) => gpu.profiles.iter().find(|p| p.name == *name),
        Slice::Memory(bytes) => gpu
            .profiles
            .iter()
            .filter(|p| u128::from(p.memory_mib) << 20 >= u128::from(*bytes))
            .min_by_key(|p| (p.memory_mib, p.compute_slices, p.name.contains(['+', '-']))),
    }
}

#[cfg(test)]
mod tests;
