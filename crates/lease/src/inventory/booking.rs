//! The memory that holders have booked, by GPU, and what limits count.

use super::Inventory;
use super::around::Owners;
use crate::gpu::Queries;
use crate::model::{Gpu, GpuLoad, GpuProcess, GpuUuid, ProfileName, Snapshot};
use crate::placement::GpuUse;
use crate::policy::{Kind, Subject, Usage};
use crate::store::{Container, Held, Holder, Instance, Lease, Resource, Share, Slice};
use std::collections::{BTreeMap, BTreeSet};

/// The memory of a GPU, and its holders.
#[derive(Debug, Clone)]
pub struct GpuBooking<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// Its use.
    pub usage: GpuUse,
    /// The memory that it gives out, in MiB, if the driver tells.
    pub total_mib: Option<u64>,
    /// Whether the driver has answered, if only that the GPU has no figure.
    pub is_told: bool,
    /// The booked part, in MiB.
    pub booked_mib: u64,
    /// The leases on it, each with its memory in MiB.
    pub held: Vec<(&'a Held, u64)>,
}

impl Inventory {
    /// Returns the booked memory of each GPU, by asking the driver for its size.
    pub fn bookings(&self, driver: &impl Queries) -> Vec<GpuBooking<'_>> {
        let gpus = self.snapshot.gpus.iter();
        gpus.map(|gpu| self.booking(driver, gpu)).collect()
    }

    fn booking<'a>(&'a self, driver: &impl Queries, gpu: &'a Gpu) -> GpuBooking<'a> {
        let state = self.use_of(driver, gpu);
        let (mut total, mut is_told) = (state.memory_mib, true);
        if total.is_none() {
            let load = driver.load(&gpu.uuid);
            is_told = !load.as_ref().is_err_and(|e| !e.is_not_supported());
            total = load.ok().and_then(|load| load.memory_mib);
        }
        let memory = |held: &Held| self.booked(&held.instance, held.lease.share()).1;
        let held = self.leases_at(&gpu.uuid).map(|held| (held, memory(held)));
        let held: Vec<(&Held, u64)> = held.collect();
        let booked_mib = match state.usage {
            GpuUse::Shared { booked_mib, .. } => booked_mib,
            GpuUse::Exclusive { .. } => total.unwrap_or_default(),
            _ => {
                // A slice counts once and whole, with all of its seats.
                let mut counted = BTreeSet::new();
                let leased = held.iter().map(|(h, mib)| match h.instance.slice() {
                    Some(slice) if counted.insert(slice.placement) => {
                        memory_of(slice, &self.snapshot)
                    }
                    Some(_) => 0,
                    None => *mib,
                });
                let leased: u64 = leased.sum();
                let unleased = self.without_lease_at(&gpu.uuid);
                let going = unleased.filter(|i| i.idle_since().is_none());
                let going =
                    { going.filter_map(Instance::slice) }.map(|s| memory_of(s, &self.snapshot));
                leased + going.sum::<u64>()
            }
        };
        GpuBooking {
            gpu,
            usage: state.usage,
            total_mib: total,
            is_told,
            booked_mib,
            held,
        }
    }

    /// Returns the kind of a portion for limits, and the memory that it books, in MiB.
    fn booked(&self, instance: &Instance, share: Option<&Share>) -> (Kind, u64) {
        match (&instance.resource, share) {
            (_, Some(share)) => (Kind::Share, share.booked_mib),
            (Resource::Mig(slice), None) => (Kind::Slice, memory_of(slice, &self.snapshot)),
            (Resource::Gpu(whole), None) => (Kind::Gpu, whole.memory_mib),
        }
    }
}

/// Returns the memory of a slice in MiB: as the driver says, or as the profile's name says for a GPU that
/// the driver does not show.
pub(crate) fn memory_of(slice: &Slice, snapshot: &Snapshot) -> u64 {
    memory_on(snapshot, &slice.gpu_uuid, slice.profile_id).unwrap_or_else(|| {
        let name: Option<ProfileName> = slice.profile.parse().ok();
        name.map_or(0, |name| u64::from(name.gigabytes) << 10)
    })
}

/// Returns the memory of a profile on a GPU, in MiB.
pub(crate) fn memory_on(snapshot: &Snapshot, gpu: &GpuUuid, profile_id: u32) -> Option<u64> {
    Some(snapshot.gpu(gpu)?.profile(profile_id)?.memory_mib)
}

impl Inventory {
    /// Returns what the machine's subjects hold. A slice that the containers of a pod share counts once, and an
    /// idle one not at all.
    pub fn usage(&self) -> Vec<Usage> {
        let mut counted = BTreeSet::new();
        let mut leased: Vec<&Held> = self.leases.iter().collect();
        leased.retain(|h| h.lease.share().is_some() || counted.insert(h.instance.id.as_str()));
        let leased = leased.into_iter();
        let leased = leased.map(|h| (holder_subject(&h.lease), &*h.instance, h.lease.share()));
        let is_going = |i: &&Instance| i.idle_since().is_none() && !i.is_hold();
        let going = self.without_lease().filter(is_going);
        let going = going.map(|i| (Subject::default(), i, None));
        let usage = |(subject, instance, share): (Subject, &Instance, Option<&Share>)| {
            let (kind, memory_mib) = self.booked(instance, share);
            let slice = share.and_then(|_| instance.slice());
            Usage {
                subject,
                kind,
                memory_mib,
                whole_mib: slice.map_or(memory_mib, |s| memory_of(s, &self.snapshot)),
            }
        };
        leased.chain(going).map(usage).collect()
    }
}

/// Returns the subject of a lease's holder.
pub(crate) fn holder_subject(lease: &Lease) -> Subject {
    match &lease.holder {
        Holder::Container(container) => subject_of(container),
        Holder::Claim(claim) => Subject {
            namespace: Some(claim.namespace.clone()),
            pod: claim.pods.first().map(|pod| pod.name.clone()),
            pod_uid: claim.pods.first().map(|pod| pod.uid.clone()),
            user: None,
        },
    }
}

/// Returns the subject that rules and limits apply to.
pub(crate) fn subject_of(holder: &Container) -> Subject {
    Subject {
        namespace: holder.namespace.clone(),
        pod: holder.pod.clone(),
        pod_uid: holder.pod_uid.clone(),
        user: holder.user,
    }
}

/// The use of a lease at one moment. None where it cannot be found out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LeaseUse {
    /// The GPU memory in use, in bytes.
    pub used_bytes: Option<u64>,
    /// The number of processes that compute there.
    pub processes: Option<usize>,
}

/// A place of the driver: a GPU, or one of its MIG devices by the ids of its instances.
type Place<'a> = (&'a GpuUuid, Option<(u32, u32)>);

/// Returns the use of each of these leases. Leases of a whole instance, as those of a pod, have the use of the instance. A
/// share has that of its container's processes.
pub fn uses<'a>(
    driver: &impl Queries,
    leases: impl IntoIterator<Item = &'a Held>,
) -> Vec<LeaseUse> {
    let owners = Owners::new();
    let mut loads: BTreeMap<&GpuUuid, Option<GpuLoad>> = BTreeMap::new();
    let mut load_of = |gpu: &'a GpuUuid| {
        let load = loads.entry(gpu).or_insert_with(|| driver.load(gpu).ok());
        load.clone()
    };
    let mut places: BTreeMap<Place<'_>, LeaseUse> = BTreeMap::new();
    let its = |held: &'a Held| {
        let gpu = held.instance.resource.gpu_uuid();
        if held.lease.share().is_some() {
            return Some(of_processes(&load_of(gpu)?, &owners, held));
        }
        let place = place(held)?;
        let of_place = || LeaseUse {
            used_bytes: driver.used_memory(gpu, place.1).ok(),
            processes: match place.1 {
                Some((gi, ci)) => driver.processes(gpu, gi, ci).ok().map(|p| p.len()),
                None => load_of(gpu).map(|load| load.processes.len()),
            },
        };
        Some(*places.entry(place).or_insert_with(of_place))
    };
    let uses = leases.into_iter().map(its);
    uses.map(Option::unwrap_or_default).collect()
}

/// Returns the place of a lease of a whole instance. None for one that the driver has not made yet.
fn place(held: &Held) -> Option<Place<'_>> {
    let mig = match held.instance.slice() {
        Some(slice) => Some(slice.gpu_instance.zip(slice.compute_instance)?),
        None => None,
    };
    Some((held.instance.resource.gpu_uuid(), mig))
}

fn of_processes(load: &GpuLoad, owners: &Owners, held: &Held) -> LeaseUse {
    if !owners.tells(&held.lease) {
        return LeaseUse::default();
    }
    let all = load.processes.iter().chain(&load.graphics);
    let its = all.filter(|p: &&GpuProcess| owners.is_of(p.pid, &held.lease));
    let its: Vec<&GpuProcess> = its.collect();
    LeaseUse {
        used_bytes: its.iter().map(|p| p.used_bytes).sum(),
        processes: Some(its.len()),
    }
}
