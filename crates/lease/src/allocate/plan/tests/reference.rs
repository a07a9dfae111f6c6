//! The plainest answer to what fits on a GPU: it tries every place.

use super::world::World;
use crate::model::{Gpu, MigMode, Placement, Profile};
use crate::placement::Slot;
use crate::request::Slice;
use crate::store;

/// A profile at a place of one GPU.
pub(super) type Span = (u32, Placement);

/// Returns whether a GPU has no more of any part than it offers: each profile, compute slices, engines.
pub(super) fn is_within_parts(gpu: &Gpu, there: &[Span]) -> bool {
    let of = |id: u32| gpu.profile(id).unwrap();
    let parts: [fn(&Profile) -> u32; 6] = [
        |p| p.compute_slices,
        |p| p.copy_engines,
        |p| p.decoders,
        |p| p.encoders,
        |p| p.jpegs,
        |p| p.ofas,
    ];
    let is_enough = |part: &fn(&Profile) -> u32| {
        let all = gpu.profiles.iter().map(part).max();
        Some(there.iter().map(|(id, _)| part(of(*id))).sum::<u32>()) <= all
    };
    let is_few = |profile: &Profile| {
        let same = there.iter().filter(|(id, _)| *id == profile.id);
        same.count() <= profile.max_instances as usize
    };
    parts.iter().all(is_enough) && gpu.profiles.iter().all(is_few)
}

pub(super) fn fits(gpu: &Gpu, there: &[Span], profile: &Profile, at: Placement) -> bool {
    let with = [there, &[(profile.id, at)]].concat();
    profile.placements.contains(&at)
        && there.iter().all(|(_, other)| !other.overlaps(at))
        && is_within_parts(gpu, &with)
}

/// Returns the profile that a request stands for on a GPU that rules leave to it.
pub(super) fn meant<'g>(world: &World, gpu: &'g Gpu, asked: &Slice) -> Option<&'g Profile> {
    let is_excluded = world.excluded.iter().any(|(uuid, _)| *uuid == gpu.uuid);
    if gpu.mig != MigMode::Enabled || is_excluded {
        return None;
    }
    let is_admitted =
        |p: &&Profile| p.compute_slices >= world.min_compute && !world.denied.contains(&p.name);
    let mut profiles: Vec<&Profile> = gpu.profiles.iter().filter(is_admitted).collect();
    match asked {
        Slice::Profile(name) => profiles.retain(|p| p.name == name.to_string()),
        Slice::Memory(bytes) => profiles.retain(|p| p.memory_mib << 20 >= *bytes),
    }
    profiles.sort_by_key(|p| (p.memory_mib, p.compute_slices, p.name.contains(['+', '-'])));
    profiles.first().copied()
}

/// Returns the slices that containers have. The containers of a pod share one.
fn held(world: &World) -> Vec<&store::Slice> {
    let leases = world.inventory.leases.iter();
    let mut held: Vec<_> = leases.map(|h| h.instance.slice().unwrap()).collect();
    held.dedup();
    held
}

/// Returns the memory of the slices that containers have, in MiB.
pub(super) fn memory_held(world: &World) -> u64 {
    let memory = |s: &store::Slice| {
        let gpu = world.gpu(&s.gpu_uuid);
        gpu.profile(s.profile_id).unwrap().memory_mib
    };
    held(world).into_iter().map(memory).sum()
}

/// Returns whether containers may hold more slices with so many MiB each.
pub(super) fn is_within_limit(world: &World, more: &[u64]) -> bool {
    let memory = memory_held(world) + more.iter().sum::<u64>();
    world.limit.iter().all(|limit| {
        { limit.slices }.is_none_or(|most| held(world).len() + more.len() <= most as usize)
            && limit.memory.is_none_or(|most| memory << 20 <= most)
    })
}

/// Returns whether a request for one slice can be satisfied at any place of any GPU. No request waits.
pub(super) fn can_be_had(world: &World, asked: &Slice) -> bool {
    let tried = &world.tried;
    world.inventory.snapshot.gpus.iter().any(|gpu| {
        let Some(profile) = meant(world, gpu, asked) else {
            return false;
        };
        let mut there = world.staying(gpu);
        let refused = tried.refused.iter().filter(|slot| slot.gpu == gpu.uuid);
        for slot in refused {
            let span = (slot.profile_id, slot.placement);
            if !there.contains(&span) {
                there.push(span);
            }
        }
        let taken = world.inventory.taken();
        let is_adoptable = gpu.instances.iter().any(|i| {
            let is_it = |slot: &Slot| slot.gpu == gpu.uuid && slot.placement == i.placement;
            world.adopts
                && i.profile_id == profile.id
                && !taken
                    .iter()
                    .chain(&tried.unfit)
                    .chain(&tried.unusable)
                    .any(is_it)
        });
        let mut places = profile.placements.iter();
        let is_free = places.any(|at| fits(gpu, &there, profile, *at));
        (is_free || is_adoptable) && is_within_limit(world, &[profile.memory_mib])
    })
}
