//! The facts of an exposition: one look at the ledger, and one short session with the driver, which may hang.

use crate::cli::driver::{self, Driver};
use crate::cli::world;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, printable};
use runmig_lease::gpu::Queries;
use runmig_lease::model::{Gpu, GpuUuid, MigMode};
use runmig_lease::placement::GpuUse;
use runmig_lease::store::Held;
use runmig_lease::{GpuState, Inventory, LeaseUse, uses};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The machine at one moment.
pub struct Facts {
    /// When the look began.
    pub begun: Instant,
    pub inventory: Inventory,
    /// The driver's answers. None if nobody asked it.
    pub driver: Option<Answers>,
}

/// The driver's answers beyond the snapshot of the inventory.
#[derive(Debug, Default)]
pub struct Answers {
    /// The failed calls, in words.
    pub failures: Vec<String>,
    /// The answers about each GPU, in the order of the snapshot.
    pub gpus: Vec<OfGpu>,
    /// The memory in bytes that the processes of each lease use, by the id of the lease.
    pub used_by_lease: BTreeMap<String, u64>,
    /// The memory in use, in bytes, by GPU and GPU instance.
    pub used_on_slice: BTreeMap<(GpuUuid, Option<u32>), u64>,
}

#[derive(Debug)]
pub struct OfGpu {
    pub state: GpuState,
    /// The memory that the GPU gives out, in MiB.
    pub total_mib: Option<u64>,
    /// How many more instances of each profile the driver would make.
    pub free: Vec<Option<u32>>,
}

impl Facts {
    /// Reads the ledger and the driver. Without a time for the driver it opens no library.
    pub fn now(config: &Config, driver_limit: Option<Duration>) -> Facts {
        let begun = Instant::now();
        let (inventory, driver) = match driver_limit.map(|limit| ask(config, limit)) {
            Some((inventory, answers)) => (inventory, Some(answers)),
            None => (Inventory::of_ledger(config), None),
        };
        Facts {
            begun,
            inventory,
            driver,
        }
    }

    /// Returns everything that could not be read, a line each.
    pub fn complaints(&self) -> Vec<String> {
        let unread = self.inventory.unread.iter();
        let failures = self.driver.iter().flat_map(|driver| &driver.failures);
        let failures = failures.map(|failure| printable(failure));
        unread.map(Error::line).chain(failures).collect()
    }
}

/// Asks the driver, too. One that does not answer in time counts as failed.
fn ask(config: &Config, limit: Duration) -> (Inventory, Answers) {
    let driver = driver::ask_within(config, limit);
    let mut answers = Answers::default();
    let inventory = match Inventory::look(config, &driver) {
        Ok(inventory) => inventory,
        Err(e) => {
            answers.failures.push(e.line());
            return (Inventory::of_ledger(config), answers);
        }
    };
    let unreadable = inventory.snapshot.unreadable.iter();
    answers.failures = unreadable.map(|(_, why)| why.clone()).collect();
    let gpus = &inventory.snapshot.gpus;
    answers.gpus = gpus
        .iter()
        .map(|gpu| of_gpu(&driver, gpu, &inventory, &mut answers.failures))
        .collect();
    let shares = { inventory.leases.iter() }.filter(|held| held.lease.share().is_some());
    let used = shares.clone().zip(uses(&driver, shares));
    let id_and_bytes =
        |(held, used): (&Held, LeaseUse)| Some((held.lease.id.to_string(), used.used_bytes?));
    answers.used_by_lease = used.filter_map(id_and_bytes).collect();
    answers.used_on_slice = used_on_slices(&driver, &inventory, &mut answers.failures);
    (inventory, answers)
}

fn of_gpu(driver: &Driver, gpu: &Gpu, world: &Inventory, failures: &mut Vec<String>) -> OfGpu {
    let state = world.use_of(driver, gpu);
    let is_unsupported = || { driver.load(&gpu.uuid) }.is_err_and(|e| e.is_not_supported());
    match &state.usage {
        GpuUse::Unknown { .. } if is_unsupported() => {}
        GpuUse::Unknown { why } if world.unread.is_none() => failures.push(why.clone()),
        GpuUse::Shared { .. } if state.compute_mode.is_none() => {
            failures.push(format!("cannot read the use of GPU {}", gpu.index));
        }
        _ => {}
    }
    let largest = gpu.profiles.iter().map(|p| p.memory_mib).max();
    let total_mib = { state.memory_mib }
        .or_else(|| driver.load(&gpu.uuid).ok()?.memory_mib)
        .or(largest);
    OfGpu {
        state,
        total_mib,
        free: world::free_instances(driver, gpu, |why| failures.push(why)),
    }
}

fn used_on_slices(
    driver: &Driver,
    world: &Inventory,
    failures: &mut Vec<String>,
) -> BTreeMap<(GpuUuid, Option<u32>), u64> {
    let entries = world.entries();
    let mut used = BTreeMap::new();
    for slice in world.slices(&entries) {
        let Some(gpu) = world.snapshot.gpu(slice.gpu_uuid) else {
            continue;
        };
        let mig = slice.gpu_instance.zip(slice.compute_instance);
        if mig.is_none() && gpu.mig == MigMode::Enabled {
            continue;
        }
        match driver.used_memory(slice.gpu_uuid, mig) {
            Ok(bytes) => {
                used.insert((slice.gpu_uuid.clone(), slice.gpu_instance), bytes);
            }
            // The slice has ended since the look.
            Err(e) if mig.is_some() && e.is_not_found() => {}
            Err(e) if e.is_not_supported() => {}
            Err(e) => failures.push(Error::from(e).line()),
        }
    }
    used
}
