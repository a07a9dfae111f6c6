//! The cheapest place for one slice.

use super::backfill::Ahead;
use super::constraints::{Wanted, fitting, usable};
use super::diagnosis;
use super::occupancy::Reserved;
use super::plan::Decision;
use super::rejection::NoRoom;
use super::score::{Costs, Demand};
use crate::model::{Gpu, Placement, Profile, Snapshot};
use crate::request::Slice;
use std::cmp::Reverse;

/// `reserved` is what the ledger has promised, whether the driver shows it yet or not.
pub fn choose<'a>(
    snapshot: &'a Snapshot,
    reserved: &[Reserved],
    wanted: &Wanted<'_>,
) -> Result<Decision<'a>, NoRoom> {
    let usable = usable(snapshot, wanted);
    if usable.is_empty() {
        return Err(diagnosis::no_gpu(snapshot, wanted));
    }
    let mut noes = Vec::new();
    for slice in wanted.alternatives {
        match choose_one(snapshot, &usable, reserved, slice, wanted) {
            Ok(decision) => return Ok(decision),
            Err(no) => noes.push(no),
        }
    }
    Err(diagnosis::none_of(noes))
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
        return Err(diagnosis::no_profile(usable, slice, wanted));
    }

    let mut best: Option<Candidate<'a>> = None;
    let kept = each_candidate(snapshot, &fitting, reserved, wanted, |candidate| {
        if best.as_ref().is_none_or(|b| candidate.rank < b.rank) {
            best = Some(candidate);
        }
    });
    let Some(best) = best else {
        if kept {
            return Err(diagnosis::kept(&fitting, slice));
        }
        return Err(diagnosis::full(snapshot, &fitting, reserved, slice, wanted));
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
pub struct Candidate<'a> {
    pub gpu: &'a Gpu,
    pub profile: &'a Profile,
    pub placement: Placement,
    /// On its GPU.
    pub cost: i64,
    pub rank: Rank,
}

/// In this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
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
pub fn each_candidate<'a>(
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
