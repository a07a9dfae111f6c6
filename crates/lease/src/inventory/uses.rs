//! The memory and the processes of each lease now, by the driver's answers.

use super::Inventory;
use super::owners::Owners;
use crate::gpu::Queries;
use crate::model::{GpuLoad, GpuProcess, GpuUuid};
use crate::store::Held;
use std::collections::BTreeMap;

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

impl Inventory {
    /// Returns the use of each lease, in their order. Leases of a whole instance, as those of a pod, have the use of the
    /// instance. A share has that of its container's processes.
    pub fn uses(&self, driver: &impl Queries) -> Vec<LeaseUse> {
        let owners = Owners::new();
        let mut loads: BTreeMap<&GpuUuid, Option<GpuLoad>> = BTreeMap::new();
        let mut places: BTreeMap<Place<'_>, LeaseUse> = BTreeMap::new();
        let mut uses = Vec::with_capacity(self.leases.len());
        for held in &self.leases {
            let gpu = held.instance.resource.gpu_uuid();
            let its = match (held.lease.share(), place(held)) {
                (Some(_), _) => {
                    load_of(&mut loads, driver, gpu).map(|load| of_processes(load, &owners, held))
                }
                (None, None) => None,
                (None, Some(place)) => Some(*places.entry(place).or_insert_with(|| LeaseUse {
                    used_bytes: driver.used_memory(gpu, place.1).ok(),
                    processes: match place.1 {
                        Some((gi, ci)) => driver.processes(gpu, gi, ci).ok().map(|p| p.len()),
                        None => load_of(&mut loads, driver, gpu).map(|load| load.processes.len()),
                    },
                })),
            };
            uses.push(its.unwrap_or_default());
        }
        uses
    }
}

/// Returns the use of a GPU as a whole, for which the driver is asked once.
fn load_of<'l, 'a>(
    loads: &'l mut BTreeMap<&'a GpuUuid, Option<GpuLoad>>,
    driver: &impl Queries,
    gpu: &'a GpuUuid,
) -> Option<&'l GpuLoad> {
    let load = loads.entry(gpu).or_insert_with(|| driver.load(gpu).ok());
    load.as_ref()
}

/// Returns the place of a lease of a whole instance. None for one that the driver has not made yet.
fn place(held: &Held) -> Option<Place<'_>> {
    let resource = &held.instance.resource;
    let mig = match resource.mig_slice() {
        Some(slice) => Some(slice.gpu_instance.zip(slice.compute_instance)?),
        None => None,
    };
    Some((resource.gpu_uuid(), mig))
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
