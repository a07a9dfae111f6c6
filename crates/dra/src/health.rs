//! The health of devices with claims: pure, from driver and ledger.

use runmig_lease::Inventory;
use runmig_lease::model::{Closed, GpuUuid, InstanceId, ListedInstance, MigMode, Placement};
use runmig_lease::store::{Claim, Held, InstanceState, LeaseState, Slice};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The time that a device must be unhealthy before its pods are evicted: one look alone may err.
const LASTING: Duration = Duration::from_secs(20);

/// The health of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The slice works, or is not made yet.
    Healthy,
    /// It does not work.
    Unhealthy(Illness),
    /// The next look tells it.
    Unknown,
}

/// Why a slice does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Illness {
    /// The kind, as one word for programs.
    pub(crate) kind: &'static str,
    /// The reason, for people.
    pub(crate) why: String,
}

/// A device with a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceHealth {
    /// The claim, with the device.
    pub(crate) claim: Claim,
    /// The health of the device.
    pub(crate) health: Health,
}

/// The slices of claims that were ready on record before the driver was asked.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    ready: BTreeMap<InstanceId, Slice>,
    /// Those whose GPU instance is there without their compute instance.
    emptied: BTreeSet<InstanceId>,
}

impl Earlier {
    /// Returns the slices that are ready on record.
    pub(crate) fn of(inventory: &Inventory) -> Earlier {
        let ready = inventory.leases.iter().filter(|held| is_ready(held));
        let slice = |held: &Held| Some((held.instance.id.clone(), held.instance.slice()?.clone()));
        Earlier {
            ready: ready.filter_map(slice).collect(),
            emptied: BTreeSet::new(),
        }
    }

    /// Notes whose compute instances are gone: a look at the GPUs tells GPU instances alone. `instances_of` asks the GPU
    /// driver for those of a profile on a GPU. It has to come before the look at the ledger, where a slice is ready until
    /// its release begins.
    pub(crate) fn look_inside(
        &mut self,
        instances_of: impl Fn(&GpuUuid, u32) -> Vec<ListedInstance>,
    ) {
        let mut listed = BTreeMap::new();
        self.emptied.clear();
        for (id, slice) in &self.ready {
            let answer = listed.entry((&slice.gpu_uuid, slice.profile_id));
            let instances = answer.or_insert_with_key(|(gpu, profile)| instances_of(gpu, *profile));
            let mut instances = instances.iter();
            let there = instances.find(|i| is_its(slice, i.id, i.profile_id, i.placement));
            let is_inside = |of: &ListedInstance| {
                let mut inside = of.compute_instances.iter();
                inside.any(|ci| Some(ci.id) == slice.compute_instance)
            };
            if there.is_some_and(|there| !is_inside(there)) {
                self.emptied.insert(id.clone());
            }
        }
    }
}

/// Returns the health of the devices in a pool that claims have.
pub(crate) fn healths(inventory: &Inventory, pool: &str, earlier: &Earlier) -> Vec<DeviceHealth> {
    let one = |held: &Held| {
        let claim = held.lease.claim().filter(|claim| claim.pool == pool)?;
        let slice = held.instance.slice()?;
        Some(DeviceHealth {
            claim: claim.clone(),
            health: health(inventory, held, slice, earlier),
        })
    };
    inventory.leases.iter().filter_map(one).collect()
}

fn health(inventory: &Inventory, held: &Held, slice: &Slice, earlier: &Earlier) -> Health {
    let snapshot = &inventory.snapshot;
    let uuid = &slice.gpu_uuid;
    let ill = |kind, why| Health::Unhealthy(Illness { kind, why });
    let Some(gpu) = snapshot.gpu(uuid) else {
        let errors: Vec<&str> = { snapshot.unreadable.iter() }
            .map(|(_, why)| why.as_str())
            .collect();
        return match errors.is_empty() {
            true => ill("GPUGone", format!("GPU {uuid} is gone")),
            false => ill(
                "GPUDoesNotAnswer",
                format!("GPU {uuid} does not answer: {}", errors.join("; ")),
            ),
        };
    };
    if gpu.mig != MigMode::Enabled {
        let why = format!("the MIG mode of GPU {} is off", gpu.index);
        return ill("MIGModeOff", why);
    }
    if let Some(sick) = gpu.closed.as_ref().and_then(Closed::sickness) {
        return ill("GPUSick", format!("GPU {} is {sick}", gpu.index));
    }
    let mut instances = gpu.instances.iter();
    let is_there = instances.any(|i| is_its(slice, i.id, i.profile_id, i.placement));
    let id = &held.instance.id;
    // A record is ready from the create of the instance until before its destroy.
    if !is_ready(held) || is_there && !earlier.emptied.contains(id) {
        return Health::Healthy;
    }
    // This one may have become ready after the driver was asked.
    if !earlier.ready.contains_key(id) {
        return Health::Unknown;
    }
    let number = |id: Option<u32>| id.map(|id| format!(" {id}")).unwrap_or_default();
    let part = match is_there {
        true => format!("compute instance{} of ", number(slice.compute_instance)),
        false => String::new(),
    };
    let (id, profile, at) = (number(slice.gpu_instance), &slice.profile, slice.placement);
    let what = format!(
        "{part}GPU instance{id} ({profile} at {at}) on GPU {}",
        gpu.index
    );
    let why = format!("{what} is gone, and runmig did not destroy it");
    ill("InstanceGone", why)
}

/// Says whether the id, the profile and the place of a GPU instance are those of a slice.
fn is_its(slice: &Slice, id: u32, profile_id: u32, placement: Placement) -> bool {
    Some(id) == slice.gpu_instance && (profile_id, placement) == (slice.profile_id, slice.placement)
}

fn is_ready(held: &Held) -> bool {
    held.lease.claim().is_some()
        && held.lease.state == LeaseState::Ready
        && held.instance.state == InstanceState::Ready
}

/// Returns the devices with claims on GPUs that an administrator drains.
pub(crate) fn drained<'a>(
    inventory: &'a Inventory,
    pool: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let is_drained = |uuid: &GpuUuid| {
        let gpu = inventory.snapshot.gpu(uuid);
        let closed = gpu.and_then(|gpu| gpu.closed.as_ref());
        closed.is_some_and(|c| c.cordon.as_ref().is_some_and(|cordon| cordon.drains))
    };
    let device = move |held: &Held| {
        let claim = held.lease.claim().filter(|claim| claim.pool == pool)?;
        is_drained(held.instance.resource.gpu_uuid()).then(|| claim.device.clone())
    };
    inventory.leases.iter().filter_map(device)
}

/// The devices that are unhealthy, each with the time of the first look that said so.
#[derive(Debug, Default)]
pub(crate) struct Sick(BTreeMap<String, (Instant, String)>);

impl Sick {
    /// Takes over the healths of a look. Returns the changes in words.
    pub(crate) fn update(&mut self, healths: &[DeviceHealth], now: Instant) -> Vec<String> {
        let mut told = Vec::new();
        let mut sick = BTreeMap::new();
        for DeviceHealth { claim, health } in healths {
            let device = &claim.device;
            let before = self.0.get(device);
            match health {
                Health::Unhealthy(Illness { why, .. }) => {
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
        let mut lasting = self.0.clone();
        lasting.retain(|_, (since, _)| now.duration_since(*since) >= LASTING);
        lasting.into_keys().collect()
    }

    /// Returns the unhealthy devices.
    pub(crate) fn devices(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
