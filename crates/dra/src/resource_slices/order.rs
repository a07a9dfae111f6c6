//! The order of a profile's devices. The scheduler takes the first that fits, so `placement`'s choice comes first,
//! then its choice for a second such request, and so on.

use super::gpus::PublishedGpu;
use super::names::DeviceName;
use super::node::Node;
use runmig_lease::model::{GpuUuid, Placement, ProfileName};
use runmig_lease::placement::{Constraints, Decision, Slot, choose};
use runmig_lease::request::Slice;
use std::collections::HashSet;

/// Orders devices of all profiles on one node.
pub(super) struct Orderer<'n> {
    node: &'n Node<'n>,
    /// Places that are taken for a new request.
    reserved: Vec<Slot>,
}

impl<'n> Orderer<'n> {
    pub(super) fn new(node: &'n Node<'n>) -> Self {
        let ledger = node.ledger;
        let mut reserved: Vec<Slot> = ledger.uses.iter().map(|used| used.slot.clone()).collect();
        let mut shadows: Vec<Slot> = { node.vacated() }
            .map(|(device, gpu)| shadow(gpu, device.placement()))
            .collect();
        let unused = { ledger.allocated.iter() }.filter(|device| !node.is_used(device));
        reserved.extend(unused.filter_map(|device| {
            let (gpu, profile) = device.find(node.snapshot).ok()?;
            Some(Slot::new(&gpu.uuid, profile.id, device.placement()))
        }));
        // A use of the place by another is enough.
        shadows.retain(|slot| !reserved.iter().any(|other| is_at(slot, other)));
        reserved.extend(shadows);
        Orderer { node, reserved }
    }

    /// Returns the available devices of a profile on these GPUs: first the choices for repeated requests, then the
    /// devices that a choice would take if those before it were taken by other profiles.
    pub(super) fn available(
        &self,
        profile: &ProfileName,
        gpus: &[&PublishedGpu],
    ) -> Vec<DeviceName> {
        let slice = Slice::Profile(profile.clone());
        let usable = gpus.iter().filter(|gpu| gpu.is_usable);
        let find = |uuid: &GpuUuid| usable.clone().find(|gpu| gpu.gpu.uuid == *uuid);
        let excluded: Vec<(GpuUuid, String)> = { self.node.snapshot.gpus.iter() }
            .filter(|gpu| find(&gpu.uuid).is_none())
            .map(|gpu| (gpu.uuid.clone(), String::new()))
            .collect();
        let offered = self.node.snapshot.gpus.iter().flat_map(|gpu| &gpu.profiles);
        let most = { offered.filter(|p| *p.name == *profile) }.map(|p| p.placements.len());
        let most: usize = most.sum();
        let mut found: Vec<(GpuUuid, Placement)> = Vec::new();
        while found.len() < most {
            let passed = { found.iter() }.map(|(gpu, placement)| shadow(gpu, *placement));
            let passed: Vec<Slot> = passed.collect();
            let before = found.len();
            self.repeat(&slice, most, &excluded, passed, &mut found);
            if found.len() == before {
                break;
            }
        }
        let name = |(gpu, placement): (GpuUuid, Placement)| {
            let address = find(&gpu)?.address;
            DeviceName::new(address, profile.clone(), placement).ok()
        };
        found.into_iter().filter_map(name).collect()
    }

    /// Adds the choices for repeated requests to `found`, up to so many.
    fn repeat(
        &self,
        slice: &Slice,
        most: usize,
        excluded: &[(GpuUuid, String)],
        passed: Vec<Slot>,
        found: &mut Vec<(GpuUuid, Placement)>,
    ) {
        let mut reserved = [self.reserved.clone(), passed].concat();
        // An idle slice goes for a slice of another profile at its place.
        let goes = |idle: &Slot| {
            let mut here = reserved.iter().filter(|slot| is_at(slot, idle));
            here.any(|slot| slot.profile_id != idle.profile_id)
        };
        let (mut evicted, mut idle): (Vec<Slot>, Vec<Slot>) =
            self.node.ledger.idle.iter().cloned().partition(goes);
        while found.len() < most {
            let constraints = Constraints {
                excluded,
                denied_profiles: self.node.denied_profiles,
                idle: &idle,
                evicted: &evicted,
                ..Constraints::one(slice)
            };
            let Ok(decision) = choose(self.node.snapshot, &reserved, &constraints) else {
                return;
            };
            let slot = decision.slot();
            let goes = |idle: &Slot| is_evicted(&decision, idle);
            evicted.extend(idle.extract_if(.., |slot| goes(slot)));
            idle.retain(|other| *other != slot);
            found.push((slot.gpu.clone(), slot.placement));
            reserved.push(slot);
        }
    }
}

/// Returns a slot of no profile, which takes memory slices alone.
fn shadow(gpu: &GpuUuid, placement: Placement) -> Slot {
    Slot::new(gpu, u32::MAX, placement)
}

fn is_at(one: &Slot, other: &Slot) -> bool {
    one.gpu == other.gpu && one.placement == other.placement
}

fn is_evicted(decision: &Decision<'_>, idle: &Slot) -> bool {
    idle.gpu == decision.gpu.uuid && decision.evicts.contains(&idle.placement)
}

/// Returns the order to publish: that of `before` while its available devices stand in the wanted order. So a slice
/// is rewritten only if the scheduler would choose otherwise.
pub fn settle(
    before: &[DeviceName],
    available: &[DeviceName],
    all: Vec<DeviceName>,
) -> Vec<DeviceName> {
    let is_available: HashSet<&DeviceName> = available.iter().collect();
    let stood = before.iter().filter(|name| is_available.contains(name));
    let is_same_set = before.len() == all.len() && {
        let all: HashSet<&DeviceName> = all.iter().collect();
        before.iter().all(|name| all.contains(name))
    };
    if is_same_set && stood.eq(available) {
        return before.to_vec();
    }
    let rest = all.into_iter().filter(|name| !is_available.contains(name));
    available.iter().cloned().chain(rest).collect()
}
