//! The only path that destroys an instance. It locates the instance, destroys it, and confirms with the
//! driver that it is gone.

use super::patience::Patience;
use crate::context::LeaseContext;
use crate::error::{Error, Result};
use crate::gpu::nvml::Session;
use crate::gpu::{DriverError, Mig, Queries, nodes};
use crate::model::ListedInstance;
use crate::process::{self, Holders};
use crate::store::{Lease, RecordName, Slice};
use std::time::{Duration, Instant};

/// The longest time between two tries to destroy an instance that is in use.
const MAX_GAP: Duration = Duration::from_millis(500);

/// Destroys the instance of a recorded lease, unless the instance outlives the lease: an administrator's
/// instance, or one of several leases.
pub(crate) fn destroy_instance_of(
    context: &LeaseContext<'_>,
    lease: &Lease,
    patience: Patience,
) -> Result<()> {
    if lease.boot_id != context.boot_id || lease.adopted {
        return Ok(());
    }
    let end = Instant::now() + patience.0;
    let mut gap = Duration::from_millis(10);
    let mut session = None;
    loop {
        match try_destroy(context, lease, &mut session)? {
            Ok(()) => return Ok(()),
            Err(e) if e.is_in_use() && Instant::now() + gap < end => {
                std::thread::sleep(gap);
                gap = (gap * 2).min(MAX_GAP);
                if Instant::now() + gap >= end {
                    // This process's own session may hold the instance, so the last try opens a new one.
                    session = None;
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Makes one try under the GPU's lock. So no other process waits for the holders of this instance.
fn try_destroy(
    context: &LeaseContext<'_>,
    lease: &Lease,
    session: &mut Option<Session>,
) -> Result<std::result::Result<(), DriverError>> {
    let gpu = &lease.slice.gpu_uuid;
    let why = format!("release of {}", lease.holder.key.id);
    let _lock = context.store.lock_gpu(gpu, &why)?;
    // Another process may have released it while this one waited for the GPU.
    let Some(lease) = context.store.get(&lease.id)? else {
        return Ok(Ok(()));
    };
    if strike_off_beside_others(context, &lease)? {
        return Ok(Ok(()));
    }
    let driver = session.get_or_insert_with(|| context.driver());
    let emptied = || mark(context, &lease.id, |l| l.slice.emptied = true).map(drop);
    destroy(driver, &lease.slice, emptied)
}

/// Destroys the instance of a slice if it exists: the compute instance, then the GPU instance. The driver's
/// lists confirm that each is gone. `emptied` records the end of the compute instance.
pub(crate) fn destroy(
    driver: &impl Mig,
    slice: &Slice,
    emptied: impl FnOnce() -> Result<()>,
) -> Result<std::result::Result<(), DriverError>> {
    let gpu = &slice.gpu_uuid;
    let Some(instance) = locate(driver, slice)? else {
        return Ok(Ok(()));
    };
    if let Some(ci) = compute_instance(slice, &instance) {
        if let Err(e) = driver.destroy_compute_instance(gpu, instance.id, ci) {
            return Ok(Err(e));
        }
        let left = locate(driver, slice)?;
        if left.is_some_and(|i| compute_instance(slice, &i).is_some()) {
            return Err(still_there(&format!("compute instance {ci} of the"), slice));
        }
        emptied()?;
    }
    if let Err(e) = driver.destroy_gpu_instance(gpu, instance.id) {
        return Ok(Err(e));
    }
    let left = driver.instances_of(gpu, instance.profile_id)?;
    if left
        .iter()
        .any(|i| (i.id, i.placement) == (instance.id, instance.placement))
    {
        return Err(still_there("the", slice));
    }
    Ok(Ok(()))
}

/// Returns the instance of a slice, if it is still the one that runmig made. The driver reuses GPU instance
/// ids and MIG UUIDs, so profile and placement must match too. If it can have no compute instance of
/// runmig, an instance with one is foreign.
pub(crate) fn locate(driver: &impl Queries, slice: &Slice) -> Result<Option<ListedInstance>> {
    let listed = driver.instances_of(&slice.gpu_uuid, slice.profile_id)?;
    let there = listed.into_iter().find(|i| i.placement == slice.placement);
    let Some(id) = slice.gpu_instance else {
        // A kill came between the intent and the record of the instance, which lies at the planned place.
        // runmig creates a compute instance only in a recorded GPU instance.
        return Ok(there.filter(|i| i.compute_instances.is_empty()));
    };
    let Some(there) = there.filter(|i| i.id == id) else {
        return Ok(None);
    };
    if slice.emptied && !there.compute_instances.is_empty() {
        return Ok(None);
    }
    if let (Some(ci), Some(uuid)) = (slice.compute_instance, &slice.mig_uuid)
        && there.compute_instances.iter().any(|c| c.id == ci)
        && driver.mig_uuid(&slice.gpu_uuid, id, ci)? != *uuid
    {
        return Ok(None);
    }
    Ok(Some(there))
}

/// Returns the compute instance that runmig created, if it exists. The compute instances of other programs
/// stay, and the driver refuses to destroy the GPU instance below them.
fn compute_instance(slice: &Slice, instance: &ListedInstance) -> Option<u32> {
    match (
        slice.compute_instance,
        instance.compute_instances.as_slice(),
    ) {
        (Some(id), there) => there.iter().any(|c| c.id == id).then_some(id),
        // A kill came between the creation and its record.
        (None, [only]) => Some(only.id),
        (None, _) => None,
    }
}

/// Removes the lease if another lease holds its instance. The instance ends with its last lease, and the
/// ledger's lock decides which lease is the last.
fn strike_off_beside_others(context: &LeaseContext<'_>, lease: &Lease) -> Result<bool> {
    let ledger = context.store.lock("release")?;
    let is_shared = has_other_leases(context, lease)?;
    if is_shared {
        ledger.remove(lease)?;
    }
    Ok(is_shared)
}

/// Returns whether another lease holds the instance too. The caller has the ledger's lock.
pub(crate) fn has_other_leases(context: &LeaseContext<'_>, lease: &Lease) -> Result<bool> {
    let neighbours = context.store.neighbours(&RecordName::of(lease))?;
    Ok(neighbours.have_instance_of(lease))
}

/// Returns the processes that have the instance's capabilities open.
pub(crate) fn holders(context: &LeaseContext<'_>, lease: &Lease) -> Holders {
    let Some(gi) = lease.slice.gpu_instance else {
        return Holders::default();
    };
    let root = &context.config.driver.root;
    let (files, devices) = nodes::capabilities_of(root, lease.slice.gpu_minor, gi);
    process::holders_of(&files, &devices)
}

fn still_there(part: &str, slice: &Slice) -> Error {
    let (at, gpu) = (slice.placement, &slice.gpu_uuid);
    Error::new(format!(
        "{part} GPU instance at {at} on GPU {gpu} is still there after the driver destroyed it"
    ))
}

/// Records the progress of a release. A record that cannot be written (a full disk) does not stop the
/// release. Its container is gone in any case, and the next release starts from the beginning.
pub(super) fn mark(
    context: &LeaseContext<'_>,
    id: &str,
    change: impl FnOnce(&mut Lease),
) -> Result<Option<Lease>> {
    let ledger = context.store.lock("release")?;
    ledger.update(id, change).or_else(|e| {
        let lease = context.store.get(id)?;
        tracing::warn!(lease = id, "{}", e.line());
        Ok(lease)
    })
}
