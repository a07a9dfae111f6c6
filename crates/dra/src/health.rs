//! The health of devices with claims: pure, from driver and ledger.

use crate::layout::{Content, PublishedSlice, Taint};
use runmig_lease::Inventory;
use runmig_lease::model::{Gpu, InstanceId, MigMode};
use runmig_lease::store::{Held, InstanceState, LeaseState, Slice};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The time that a device must be unhealthy before its pods are evicted: one look alone may err.
const LASTING: Duration = Duration::from_secs(20);

/// The health of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The slice works, or is not made yet.
    Healthy,
    /// It does not work, for this reason.
    Unhealthy(String),
    /// The next look tells it.
    Unknown,
}

/// A device with a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceHealth {
    /// The pool of the device.
    pub(crate) pool: String,
    /// The name of the device.
    pub(crate) device: String,
    /// The claim, for people.
    pub(crate) claim: String,
    /// Its health.
    pub(crate) health: Health,
}

/// Returns the health of the devices in a pool that claims have. `earlier`: the instances that were ready on record
/// before the driver was asked.
pub(crate) fn healths(
    inventory: &Inventory,
    pool: &str,
    earlier: &BTreeSet<InstanceId>,
) -> Vec<DeviceHealth> {
    let one = |held: &Held| {
        let claim = held.lease.claim().filter(|claim| claim.pool == pool)?;
        let slice = held.instance.slice()?;
        Some(DeviceHealth {
            pool: claim.pool.clone(),
            device: claim.device.clone(),
            claim: claim.to_string(),
            health: health(inventory, held, slice, earlier),
        })
    };
    inventory.leases.iter().filter_map(one).collect()
}

fn health(
    inventory: &Inventory,
    held: &Held,
    slice: &Slice,
    earlier: &BTreeSet<InstanceId>,
) -> Health {
    let snapshot = &inventory.snapshot;
    let uuid = &slice.gpu_uuid;
    let Some(gpu) = snapshot.gpus.iter().find(|gpu| gpu.uuid == *uuid) else {
        let errors: Vec<&str> = { snapshot.unreadable.iter() }
            .map(|(_, why)| why.as_str())
            .collect();
        return Health::Unhealthy(match errors.is_empty() {
            true => format!("GPU {uuid} is gone"),
            false => format!("GPU {uuid} does not answer: {}", errors.join("; ")),
        });
    };
    if gpu.mig != MigMode::Enabled {
        return Health::Unhealthy(format!("the MIG mode of GPU {} is off", gpu.index));
    }
    // A record is ready from the create of the instance until before its destroy.
    if !is_ready(held) || is_there(gpu, slice) {
        return Health::Healthy;
    }
    // This one may have become ready after the driver was asked.
    if !earlier.contains(&held.instance.id) {
        return Health::Unknown;
    }
    let id = slice.gpu_instance.map(|id| format!(" {id}"));
    Health::Unhealthy(format!(
        "GPU instance{} ({} at {}) on GPU {} is gone, and runmig did not destroy it",
        id.unwrap_or_default(),
        slice.profile,
        slice.placement,
        gpu.index
    ))
}

fn is_there(gpu: &Gpu, slice: &Slice) -> bool {
    gpu.instances.iter().any(|i| {
        Some(i.id) == slice.gpu_instance
            && (i.profile_id, i.placement) == (slice.profile_id, slice.placement)
    })
}

fn is_ready(held: &Held) -> bool {
    held.lease.state == LeaseState::Ready && held.instance.state == InstanceState::Ready
}

/// Returns the instances of claims that are ready on record.
pub(crate) fn ready(inventory: &Inventory) -> BTreeSet<InstanceId> {
    let ready = inventory.leases.iter().filter(|held| is_ready(held));
    ready.map(|held| held.instance.id.clone()).collect()
}

/// The devices that are unhealthy, each with the time of the first look that said so.
#[derive(Debug, Default)]
pub(crate) struct Sick(BTreeMap<String, (Instant, String)>);

impl Sick {
    /// Takes over the healths of a look. Returns the changes in words.
    pub(crate) fn update(&mut self, healths: &[DeviceHealth], now: Instant) -> Vec<String> {
        let mut told = Vec::new();
        let mut sick = BTreeMap::new();
        for DeviceHealth {
            device,
            claim,
            health,
            ..
        } in healths
        {
            let before = self.0.get(device);
            match health {
                Health::Unhealthy(why) => {
                    if before.is_none_or(|(_, known)| known != why) {
                        told.push(format!("device {device} of {claim} is unhealthy: {why}"));
                    }
                    let since = before.map_or(now, |(since, _)| *since);
                    sick.insert(device.clone(), (since, why.clone()));
                }
                Health::Healthy if before.is_some() => {
                    told.push(format!("device {device} of {claim} is healthy again"));
                }
                Health::Healthy | Health::Unknown => {}
            }
        }
        self.0 = sick;
        told
    }

    /// Returns the devices that have been unhealthy for so long that no single look can have erred.
    pub(crate) fn lasting(&self, now: Instant) -> BTreeSet<String> {
        let is_lasting =
            |(_, (since, _)): &(&String, &(Instant, String))| now.duration_since(*since) >= LASTING;
        let lasting = self.0.iter().filter(is_lasting);
        lasting.map(|(device, _)| device.clone()).collect()
    }

    /// Taints the unhealthy devices.
    pub(crate) fn taint(&self, slices: &mut [PublishedSlice]) {
        for slice in slices {
            let Content::Devices(devices) = &mut slice.content else {
                continue;
            };
            for device in devices {
                if let Some((_, why)) = self.0.get(&device.name.to_string()) {
                    device.taint = Some(Taint::Unhealthy(why.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
