//! The facts of a node from which its ResourceSlices follow, and the ledger's part of them.

use super::names::{self, DeviceName};
use runmig_lease::Inventory;
use runmig_lease::error::{Error, Result};
use runmig_lease::model::{Gpu, GpuUuid, Placement, Profile, Snapshot};
use runmig_lease::placement::Slot;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Everything from which the ResourceSlices of a node follow.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// The name of the node.
    pub name: &'a str,
    /// The driver's answers.
    pub snapshot: &'a Snapshot,
    /// The compute capabilities of the GPUs, as far as they are known.
    pub compute_capabilities: &'a BTreeMap<GpuUuid, (u32, u32)>,
    /// The GPUs that are not for claims, each with the rule in words, as `Config::unpublished` returns them.
    pub excluded: &'a [(GpuUuid, String)],
    /// The names of the profiles that no container may have, as `Policy::denied_profiles` returns them.
    pub denied_profiles: &'a [String],
    /// The names of the devices that do not work.
    pub sick: &'a BTreeSet<String>,
    /// The names of the devices whose pods Kubernetes is to evict, if they are unhealthy or cordoned.
    pub evicted: &'a BTreeSet<String>,
    /// The ledger's part.
    pub ledger: &'a Uses,
}

/// A promised place on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The place.
    pub slot: Slot,
    /// The device that the scheduler allocated to the claim that uses the place. After a move, that names another
    /// place. None for anything else: a container, an instance that is about to go, a record that cannot be read.
    pub claim: Option<DeviceName>,
}

/// A used place, with the profile if the GPU offers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occupant<'a> {
    pub(super) profile: Option<&'a Profile>,
    pub(super) at: Placement,
    pub(super) claim: Option<&'a DeviceName>,
}

impl Node<'_> {
    /// Returns the used places of a GPU as `placement` counts them: instances that are not idle, and promises.
    pub(super) fn occupants<'s>(&'s self, gpu: &'s Gpu) -> Vec<Occupant<'s>> {
        let uses = { self.ledger.uses.iter() }.filter(|u| u.slot.gpu == gpu.uuid);
        let mut found: Vec<Occupant<'s>> = Vec::new();
        for instance in &gpu.instances {
            let is_here =
                |slot: &Slot| slot.gpu == gpu.uuid && slot.placement == instance.placement;
            let is_it = |slot: &Slot| is_here(slot) && slot.profile_id == instance.profile_id;
            // An idle slice goes for a promise of another profile.
            let is_promised = uses.clone().any(|u| is_it(&u.slot));
            if is_promised || !self.ledger.idle.iter().any(is_it) {
                found.push(Occupant {
                    profile: gpu.profile(instance.profile_id),
                    at: instance.placement,
                    claim: None,
                });
            }
        }
        for used in uses {
            let claim = used.claim.as_ref();
            match found.iter_mut().find(|o| o.at == used.slot.placement) {
                Some(occupant) => occupant.claim = occupant.claim.or(claim),
                None => found.push(Occupant {
                    profile: gpu.profile(used.slot.profile_id),
                    at: used.slot.placement,
                    claim,
                }),
            }
        }
        found
    }

    /// Says whether a use is that of the claim with a device.
    pub(super) fn is_used(&self, device: &DeviceName) -> bool {
        { self.ledger.uses.iter() }.any(|used| used.claim.as_ref() == Some(device))
    }

    /// Returns the places that the scheduler counts as taken and no use covers: those that the devices of moved
    /// promises name.
    pub(super) fn vacated(&self) -> impl Iterator<Item = (&DeviceName, &GpuUuid)> {
        self.ledger.uses.iter().filter_map(|Use { slot, claim }| {
            let device = claim.as_ref()?;
            (device.placement() != slot.placement).then_some((device, &slot.gpu))
        })
    }
}

/// The used places of a ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// The promised places. Instances that only the driver shows need no entry.
    pub uses: Vec<Use>,
    /// The places of idle slices.
    pub idle: Vec<Slot>,
    /// The devices of the claims.
    pub allocated: HashSet<DeviceName>,
}

/// Returns the used places of an inventory on a node.
///
/// # Errors
/// The ledger could not be read, so nothing tells which places are taken. The node should keep its last layout.
pub fn uses(inventory: &Inventory, node: &str) -> Result<Uses> {
    if let Some(e) = &inventory.unread {
        let why = e.reason();
        return Err(Error::new(format!("cannot read the used places: {why}")));
    }
    let pool = names::pool(node);
    let claims = inventory.leases.iter().filter_map(|held| {
        // The device of another pool is from a time at which the node had another name.
        let claim = held.lease.claim().filter(|claim| claim.pool == pool)?;
        let slice = held.instance.slice()?;
        let slot = Slot::new(&slice.gpu_uuid, slice.profile_id, slice.placement);
        let is_quarantined = held.instance.attempt().is_some();
        Some((slot, claim.device.parse().ok()?, is_quarantined))
    });
    let claims: Vec<(Slot, DeviceName, bool)> = claims.collect();
    // Unprepare of a quarantined slice has failed, and its claim may have ended since.
    let claim = |slot: &Slot| {
        let is_its = |(its, _, is_quarantined): &&_| its == slot && !is_quarantined;
        let (_, device, _) = claims.iter().find(is_its)?;
        Some(device.clone())
    };
    let mut uses: Vec<Use> = Vec::new();
    for slot in inventory.reserved() {
        if uses.iter().all(|used| used.slot != slot) {
            let claim = claim(&slot);
            uses.push(Use { slot, claim });
        }
    }
    Ok(Uses {
        uses,
        idle: inventory.idle(),
        allocated: claims.into_iter().map(|(_, device, _)| device).collect(),
    })
}
