//! Where a slice goes: a pure function of what the driver says and what is asked. No geometry is
//! built in, no file read.
//!
//! `room` says what fits where, `score` how much a choice would cost those who come later, `pass`
//! what those who came before are left, `why` what to tell who finds no room.

mod pass;
mod room;
mod score;
mod why;

pub use pass::{Awaited, could_use, is_held_up};
pub use room::Reserved;
pub use why::{NoRoom, none_of};

use crate::model::{Gpu, MigMode, Placement, Profile, Snapshot};
use crate::request::Slice;
use pass::Ahead;
use room::Room;
use std::cmp::Reverse;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a> {
    pub gpu: &'a Gpu,
    pub profile: &'a Profile,
    pub placement: Placement,
    /// Idle slices of that GPU that have to be destroyed first. If the place is just that of an idle
    /// slice of the profile, none: that one can be handed out as it is.
    pub evicts: Vec<Placement>,
}

/// What a container wants, and what stands in its way besides other slices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// The first that can be had.
    pub alternatives: &'a [Slice],
    /// The least number of compute slices; 0 where any will do.
    pub min_compute: u32,
    /// GPUs that a rule keeps from this container, by UUID, and the rule in words.
    pub excluded: &'a [(String, String)],
    /// Profiles that a rule keeps from this container, by name.
    pub barred: &'a [String],
    /// What those wait for who came before.
    pub ahead: &'a [Awaited],
    /// What is ours on the GPUs, and goes one day: with `ahead`.
    pub ours: &'a [Reserved],
    /// Slices that nobody has and that are only kept for the next: free, but dearer than free.
    pub idle: &'a [Reserved],
}

impl<'a> Wanted<'a> {
    pub fn one(slice: &'a Slice) -> Self {
        Wanted {
            alternatives: std::slice::from_ref(slice),
            ..Wanted::default()
        }
    }

    fn excludes(&self, gpu: &Gpu) -> bool {
        self.excluded.iter().any(|(uuid, _)| *uuid == gpu.uuid)
    }

    /// What a request means on one GPU: the profile of that name, or the smallest that has the
    /// memory, then the fewest compute slices, then the plain one (`1g.24gb` before `1g.24gb-me`).
    fn profile_on<'g>(&self, gpu: &'g Gpu, asked: &Slice) -> Option<&'g Profile> {
        let mut allowed = gpu
            .profiles
            .iter()
            .filter(|p| p.compute_slices >= self.min_compute && !self.barred.contains(&p.name));
        match asked {
            Slice::Profile(name) => allowed.find(|p| p.name == *name),
            Slice::Memory(bytes) => allowed
                .filter(|p| u128::from(p.memory_mib) << 20 >= u128::from(*bytes))
                .min_by_key(|p| (p.memory_mib, p.compute_slices, p.name.contains(['+', '-']))),
        }
    }
}

/// Whether its MIG mode is on.
fn is_on(gpu: &Gpu) -> bool {
    gpu.mig == MigMode::Enabled
}

/// `reserved` is what the ledger has promised, whether the driver shows it yet or not.
pub fn choose<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Reserved],
    wanted: &Wanted<'_>,
) -> Result<Decision<'a>, NoRoom> {
    let on: Vec<&Gpu> = snapshot.gpus.iter().filter(|g| is_on(g)).collect();
    if on.is_empty() {
        return Err(why::no_gpu(snapshot));
    }
    let usable: Vec<&Gpu> = on.iter().copied().filter(|g| !wanted.excludes(g)).collect();
    if usable.is_empty() {
        return Err(why::all_excluded(&on, wanted.excluded));
    }
    let mut noes = Vec::new();
    for slice in wanted.alternatives {
        match choose_one(&usable, reserved, slice, wanted) {
            Ok(decision) => return Ok(decision),
            Err(no) => noes.push(no),
        }
    }
    Err(why::none_of(noes))
}

fn choose_one<'a>(
    usable: &[&'a Gpu],
    reserved: &[Reserved],
    slice: &Slice,
    wanted: &Wanted<'_>,
) -> Result<Decision<'a>, NoRoom> {
    let fitting: Vec<(&Gpu, &Profile)> = usable
        .iter()
        .filter_map(|gpu| Some((*gpu, wanted.profile_on(gpu, slice)?)))
        .collect();
    if fitting.is_empty() {
        return Err(why::no_profile(usable, slice, wanted));
    }

    let (mut best, mut kept) = (None, false);
    for &(gpu, profile) in &fitting {
        let room = Room::new(gpu, reserved, wanted.idle);
        let before = score::fragmentation(gpu, &room);
        let ahead = Ahead::on(gpu, wanted);
        for placement in room.places(profile) {
            if !ahead.lets(profile, placement) {
                kept = true;
                continue;
            }
            let after = score::fragmentation(gpu, &room.with(profile, placement));
            let cost = after - before;
            let is_idle = room.is_idle(profile, placement);
            let evicts: Vec<Placement> = match is_idle {
                true => Vec::new(),
                false => room.idle_at(placement).collect(),
            };
            let rank = (
                // An amount of memory may mean different profiles on different models.
                profile.memory_mib,
                // An idle slice of just that profile is had without making one.
                !is_idle,
                cost,
                evicts.len(),
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
                        evicts,
                    },
                ));
            }
        }
    }
    best.map(|(_, decision)| decision).ok_or_else(|| {
        if kept {
            return why::kept(&fitting, slice);
        }
        why::full(&fitting, reserved, slice)
    })
}

#[cfg(test)]
mod passing;
#[cfg(test)]
mod tests;
