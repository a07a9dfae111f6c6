//! The memory that holders have booked, by GPU.

use super::Inventory;
use crate::gpu::Queries;
use crate::model::{Gpu, GpuUuid, ProfileName};
use crate::placement::GpuUse;
use crate::store::{Held, Instance, Resource, Slice};
use std::collections::BTreeSet;

/// The memory of a GPU, and its holders.
#[derive(Debug, Clone)]
pub struct GpuBooking<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// Its use.
    pub usage: GpuUse,
    /// The memory that it gives out, in MiB, if the driver tells.
    pub total_mib: Option<u64>,
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
        let total = { state.memory_mib.filter(|mib| *mib > 0) }
            .or_else(|| driver.load(&gpu.uuid).ok().map(|load| load.memory_mib));
        let here = |i: &Instance| i.resource.gpu_uuid() == &gpu.uuid;
        let held: Vec<(&Held, u64)> = { self.leases.iter() }
            .filter(|h| here(&h.instance))
            .map(|h| (h, self.memory_of_lease(h)))
            .collect();
        let booked_mib = match state.usage {
            GpuUse::Shared { booked_mib, .. } => booked_mib,
            GpuUse::Exclusive { .. } => total.unwrap_or_default(),
            _ => {
                // A slice counts once and whole, with all of its seats.
                let mut counted = BTreeSet::new();
                let leased = held
                    .iter()
                    .map(|(h, mib)| match h.instance.resource.mig_slice() {
                        Some(slice) if counted.insert(slice.placement) => {
                            memory_of(slice, &self.snapshot.gpus)
                        }
                        Some(_) => 0,
                        None => *mib,
                    });
                let leased: u64 = leased.sum();
                let going = self.unleased.iter().filter(|i| i.idle_since().is_none());
                let going = going.filter(|i| here(i)).filter_map(Instance::slice);
                let going = going.map(|s| memory_of(s, &self.snapshot.gpus));
                leased + going.sum::<u64>()
            }
        };
        GpuBooking {
            gpu,
            usage: state.usage,
            total_mib: total,
            booked_mib,
            held,
        }
    }

    /// Returns the memory that a lease books, in MiB.
    fn memory_of_lease(&self, held: &Held) -> u64 {
        match (&held.instance.resource, held.lease.share()) {
            (_, Some(share)) => share.booked_mib,
            (Resource::Mig(slice), None) => memory_of(slice, &self.snapshot.gpus),
            (Resource::Gpu(whole), None) => whole.memory_mib,
            (Resource::Mps(daemon), None) => daemon.booked_mib,
        }
    }
}

/// Returns the memory of a slice in MiB: as the driver says, or as the profile's name says for a GPU that
/// the driver does not show.
pub(crate) fn memory_of(slice: &Slice, gpus: &[Gpu]) -> u64 {
    memory_on(gpus, &slice.gpu_uuid, slice.profile_id).unwrap_or_else(|| {
        let name: Option<ProfileName> = slice.profile.parse().ok();
        name.map_or(0, |name| u64::from(name.gigabytes) << 10)
    })
}

/// Returns the memory of a profile on a GPU, in MiB.
pub(crate) fn memory_on(gpus: &[Gpu], gpu: &GpuUuid, profile_id: u32) -> Option<u64> {
    let gpu = gpus.iter().find(|g| g.uuid == *gpu)?;
    Some(gpu.profile(profile_id)?.memory_mib)
}
