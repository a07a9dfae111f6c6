//! Where a slice goes: a pure function of what the driver says and what is asked. No geometry is
//! built in, no file read.
//!
//! `room` says what fits where, `score` how much a choice would cost those who come later, `pass`
//! what those who came before are left, `explain` why each GPU will do or will not, `repack` what
//! would have to lie elsewhere (`pack`: whether that helps at all, `replay`: where it would then
//! lie), `several` what a container gets that asks for more than one, `reason` and `why` what to
//! tell who finds no room.

mod explain;
mod pack;
mod pass;
mod reason;
mod repack;
mod replay;
mod room;
mod score;
mod several;
mod why;

pub use explain::{OnGpu, Place, Verdict, explain, fragmentation};
pub use pack::Packer;
pub use pass::{Awaited, could_use, is_held_up};
pub use reason::{Kind, Reason, reason};
pub use repack::{Found, Movable, Move, PATIENCE, Plan, Site, fewest_moves};
pub use room::{Lying, Reserved, Room};
pub use several::{Taken, choose_several, never_several};
pub use why::{NoRoom, none_of, of_several};

use crate::model::{Gpu, MigMode, Placement, Profile, Snapshot};
use crate::request::Slice;
use pass::Ahead;
use score::{Costs, Demand};
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

impl Decision<'_> {
    pub fn place(&self) -> Reserved {
        Reserved {
            gpu: self.gpu.uuid.clone(),
            profile_id: self.profile.id,
            placement: self.placement,
        }
    }
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
    /// GPUs where the container has a slice already, by UUID: taken where no other has room.
    pub beside: &'a [String],
    /// Slices that nobody has and that are only kept for the next: free, but dearer than free.
    pub idle: &'a [Reserved],
    /// Of those, what goes for another slice of the container.
    pub gone: &'a [Reserved],
    /// Of what is reserved, that which could not be given back.
    pub quarantined: &'a [Reserved],
}

impl<'a> Wanted<'a> {
    pub fn one(slice: &'a Slice) -> Self {
        Wanted {
            alternatives: std::slice::from_ref(slice),
            ..Wanted::default()
        }
    }

    /// As if nobody had come before.
    fn alone(&self) -> Self {
        Wanted {
            ahead: &[],
            ours: &[],
            ..*self
        }
    }

    fn room<'g>(&self, gpu: &'g Gpu, reserved: &[Reserved]) -> Room<'g> {
        Room::without(gpu, self.gone, reserved, self.idle)
    }

    fn rule_against(&self, gpu: &Gpu) -> Option<&str> {
        let rule = self.excluded.iter().find(|(uuid, _)| *uuid == gpu.uuid);
        rule.map(|(_, rule)| rule.as_str())
    }

    fn excludes(&self, gpu: &Gpu) -> bool {
        self.rule_against(gpu).is_some()
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
    let usable = usable(snapshot, wanted);
    if usable.is_empty() {
        return Err(why::no_gpu(snapshot, wanted));
    }
    let mut noes = Vec::new();
    for slice in wanted.alternatives {
        match choose_one(snapshot, &usable, reserved, slice, wanted) {
            Ok(decision) => return Ok(decision),
            Err(no) => noes.push(no),
        }
    }
    Err(why::none_of(noes))
}

/// GPUs with MIG on that no rule keeps from it.
fn usable<'a>(snapshot: &'a Snapshot, wanted: &Wanted<'_>) -> Vec<&'a Gpu> {
    let gpus = snapshot.gpus.iter();
    gpus.filter(|g| is_on(g) && !wanted.excludes(g)).collect()
}

/// What a request means on each GPU that has it.
fn fitting<'a>(
    usable: &[&'a Gpu],
    slice: &Slice,
    wanted: &Wanted<'_>,
) -> Vec<(&'a Gpu, &'a Profile)> {
    usable
        .iter()
        .filter_map(|gpu| Some((*gpu, wanted.profile_on(gpu, slice)?)))
        .collect()
}

fn choose_one<'a>(
    snapshot: &'a Snapshot,
    usable: &[&'a Gpu],
    reserved: &[Reserved],
    slice: &Slice,
    wanted: &Wanted<'_>,
) -> Result<Decision<'a>, NoRoom> {
    let fitting = fitting(usable, slice, wanted);
    if fitting.is_empty() {
        return Err(why::no_profile(usable, slice, wanted));
    }

    let mut best: Option<Candidate<'a>> = None;
    let kept = each_candidate(snapshot, &fitting, reserved, wanted, |candidate| {
        if best.as_ref().is_none_or(|b| candidate.rank < b.rank) {
            best = Some(candidate);
        }
    });
    let Some(best) = best else {
        if kept {
            return Err(why::kept(&fitting, slice));
        }
        return Err(why::full(snapshot, &fitting, reserved, slice, wanted));
    };
    let (gpu, profile, placement) = (best.gpu, best.profile, best.placement);
    Ok(Decision {
        gpu,
        profile,
        placement,
        evicts: wanted.room(gpu, reserved).in_the_way(profile, placement),
    })
}

/// A place where a slice could go. The least rank is taken.
struct Candidate<'a> {
    gpu: &'a Gpu,
    profile: &'a Profile,
    placement: Placement,
    /// On its GPU.
    cost: i64,
    rank: Rank,
}

/// In this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Several slices of one container lie on GPUs of their own.
    is_beside: bool,
    /// An amount of memory may mean different profiles on different models: the smallest by name, as
    /// one and the same has a little more or less memory on each; then the fewest compute slices.
    size: (u32, u32),
    /// An idle slice of just that profile is had without making one.
    is_made: bool,
    cost: i64,
    free_slices: u32,
    start: Reverse<u32>,
    gpu_index: u32,
}

/// Says whether there were places that those who came before wait for.
fn each_candidate<'a>(
    snapshot: &Snapshot,
    fitting: &[(&'a Gpu, &'a Profile)],
    reserved: &[Reserved],
    wanted: &Wanted<'_>,
    mut see: impl FnMut(Candidate<'a>),
) -> bool {
    let demand = Demand::on(snapshot, wanted);
    let mut kept = false;
    for &(gpu, profile) in fitting {
        let room = wanted.room(gpu, reserved);
        let mut places = room.places(profile).peekable();
        if places.peek().is_none() {
            continue;
        }
        let costs = Costs::of(&room, &demand);
        let free_slices = room.free_slices();
        let ahead = Ahead::on(gpu, wanted);
        let is_beside = wanted.beside.contains(&gpu.uuid);
        for placement in places {
            if !ahead.lets(profile, placement) {
                kept = true;
                continue;
            }
            let evicts = room.in_the_way(profile, placement).len();
            let cost = costs.cost(placement);
            see(Candidate {
                gpu,
                profile,
                placement,
                cost,
                rank: Rank {
                    is_beside,
                    size: (profile.gigabytes(), profile.compute_slices),
                    is_made: !room.is_idle(profile, placement),
                    cost: costs.in_all(cost, placement, evicts),
                    free_slices,
                    start: Reverse(placement.start),
                    gpu_index: gpu.index,
                },
            });
        }
    }
    kept
}

#[cfg(test)]
mod passing;
#[cfg(test)]
mod tests;
