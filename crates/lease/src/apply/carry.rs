//! Makes the changes of an apply with the driver, each under the lock of its GPU.

use super::journal::{Change, Step};
use crate::error::{Context, Error, Result};
use crate::gpu::{DriverError, INSUFFICIENT_RESOURCES, Mig};
use crate::leases::Leases;
use crate::model::Profile;
use crate::reclaim::{self, Patience};
use crate::store::{Instance, InstanceState};
use std::collections::VecDeque;
use std::sync::Arc;

/// Makes the changes in their order, and removes each from the list. At an error the first of the list is the one that
/// failed.
pub(super) fn carry_out(
    context: &Leases<'_>,
    driver: &impl Mig,
    steps: &mut VecDeque<Step>,
) -> Result<()> {
    while let Some(step) = steps.front() {
        make(context, driver, step)?;
        steps.pop_front();
    }
    Ok(())
}

fn make(context: &Leases<'_>, driver: &impl Mig, step: &Step) -> Result<()> {
    let instance = &step.instance;
    match &step.change {
        Change::Keep => Ok(()),
        Change::Destroy => reclaim::destroy_unwanted(context, instance, Patience::default())
            .context(|| format!("destroy {}", instance.resource)),
        Change::Create { parts, is_whole } => create(context, driver, instance, parts, *is_whole)
            .map_err(|e| {
                // Nothing of it stays, as far as the driver allows.
                let undone = reclaim::destroy_unwanted(context, instance, Patience::NONE);
                e.and(undone.err())
            })
            .context(|| format!("create {}", instance.resource)),
    }
}

/// Creates an instance, then its compute instances. Each step is on record before the next one.
fn create(
    context: &Leases<'_>,
    driver: &impl Mig,
    instance: &Instance,
    parts: &[u32],
    is_whole: bool,
) -> Result<()> {
    let no_slice = || Error::new("the instance is not a MIG slice");
    let slice = instance.slice().ok_or_else(no_slice)?;
    let gpu = &slice.gpu_uuid;
    let _lock = context.store.lock_gpu(gpu, "apply of a layout")?;
    let profile = Profile {
        name: slice.profile.clone(),
        id: slice.profile_id,
        ..Profile::default()
    };
    // From here on, an instance without a compute instance at that place counts as this one.
    record(context, instance, |i| i.planned = false)?;
    let made = driver.create_gpu_instance(gpu, &profile, slice.placement);
    let is_refused = |e: &DriverError| e.code() == Some(INSUFFICIENT_RESOURCES);
    if made.as_ref().is_err_and(is_refused) {
        // The driver made nothing, so an instance at that place is foreign.
        let ledger = context.store.lock("apply")?;
        ledger.change(|state| Ok(state.remove_instance(&instance.id)))?;
    }
    let gi = made?;
    record(context, instance, |i| {
        i.change_slice(|s| s.gpu_instance = Some(gi));
    })?;
    let part = |slices: &u32| match is_whole {
        true => driver.create_compute_instance(gpu, gi),
        false => driver.create_part(gpu, gi, *slices),
    };
    let made: Vec<u32> = parts.iter().map(part).collect::<Result<_, _>>()?;
    let only = match made.as_slice() {
        [only] => Some((*only, driver.mig_uuid(gpu, gi, *only)?)),
        _ => None,
    };
    let made = record(context, instance, |i| {
        i.change_slice(|s| (s.compute_instance, s.mig_uuid) = only.unzip());
        i.state = InstanceState::Ready;
        i.operation = None;
    })?;
    tracing::info!(instance = made.id.as_str(), "{} is made", made.resource);
    Ok(())
}

/// Changes the record of an instance; an error where it is there no more.
fn record(
    context: &Leases<'_>,
    instance: &Instance,
    change: impl FnOnce(&mut Instance),
) -> Result<Arc<Instance>> {
    let ledger = context.store.lock("apply")?;
    let changed = ledger.update_instance(instance, change)?;
    changed.ok_or_else(|| Error::new("another process has removed its record"))
}
