//! Makes the changes of an apply with the driver, each under the lock of its GPU.

use super::journal::{Parts, Step};
use crate::context::LeaseContext;
use crate::error::{Context, Error, Result};
use crate::gpu::{DriverError, INSUFFICIENT_RESOURCES, Mig};
use crate::model::Profile;
use crate::reclaim::{self, Patience};
use crate::store::{Instance, InstanceState, Slice};
use std::collections::VecDeque;

/// Makes the changes in their order, and removes each from the list. At an error the first of the list is the one that
/// failed.
pub(super) fn carry_out(
    context: &LeaseContext<'_>,
    driver: &impl Mig,
    steps: &mut VecDeque<Step>,
) -> Result<()> {
    while let Some(step) = steps.front() {
        make(context, driver, step)?;
        steps.pop_front();
    }
    Ok(())
}

fn make(context: &LeaseContext<'_>, driver: &impl Mig, step: &Step) -> Result<()> {
    match step {
        Step::Destroy { instance, .. } => {
            reclaim::destroy_unwanted(context, instance, Patience::default())
                .context(|| format!("destroy {}", instance.resource))
        }
        Step::Build { instance, parts } if instance.state == InstanceState::Creating => {
            build(context, driver, instance, parts)
                .map_err(|e| {
                    // Nothing of it stays, as far as the driver allows.
                    let undone = reclaim::destroy_unwanted(context, instance, Patience::NONE);
                    e.and(undone.err())
                })
                .context(|| format!("create {}", instance.resource))
        }
        Step::Build { instance, parts } => build(context, driver, instance, parts)
            .context(|| format!("create the compute instances of {}", instance.resource)),
    }
}

/// Creates compute instances, and before them their instance if that is new. Each step is on record before the next one.
fn build(
    context: &LeaseContext<'_>,
    driver: &impl Mig,
    instance: &Instance,
    parts: &Parts,
) -> Result<()> {
    let no_slice = || Error::new("the instance is no MIG slice");
    let slice = instance.slice().ok_or_else(no_slice)?;
    let _lock = context
        .store
        .lock_gpu(&slice.gpu_uuid, "apply of a layout")?;
    let gi = match instance.state {
        InstanceState::Creating => create(context, driver, instance, slice)?,
        _ => unchanged(driver, slice, parts)?,
    };
    let only = create_parts(driver, slice, gi, parts)?;
    let made = record(context, instance, |i| {
        i.change_slice(|s| set(s, only));
        i.state = InstanceState::Ready;
        i.operation = None;
    })?;
    tracing::info!(instance = made.id.as_str(), "{} is made", made.resource);
    Ok(())
}

/// Creates the instance of a slice, and returns its id.
fn create(
    context: &LeaseContext<'_>,
    driver: &impl Mig,
    instance: &Instance,
    slice: &Slice,
) -> Result<u32> {
    let profile = Profile {
        name: slice.profile.clone(),
        id: slice.profile_id,
        ..Profile::default()
    };
    // From here on, an instance without a compute instance at that place counts as this one.
    record(context, instance, |i| i.planned = false)?;
    let made = driver.create_gpu_instance(&slice.gpu_uuid, &profile, slice.placement);
    let is_refused = |e: &DriverError| e.code() == Some(INSUFFICIENT_RESOURCES);
    if made.as_ref().is_err_and(is_refused) {
        // The driver made nothing, so an instance at that place is foreign.
        context.store.lock("apply")?.remove_instance(instance)?;
    }
    let gi = made?;
    record(context, instance, |i| {
        i.change_slice(|s| s.gpu_instance = Some(gi));
    })?;
    Ok(gi)
}

/// Returns the id of an instance that has the compute instances which the plan saw. Another apply or an administrator may
/// have changed it since.
fn unchanged(driver: &impl Mig, slice: &Slice, parts: &Parts) -> Result<u32> {
    let there = reclaim::locate(driver, slice)?;
    let same = there.filter(|there| there.compute_instances.len() == parts.there);
    let changed = || Error::new("another program has changed it").hint("apply the layout again");
    same.map(|there| there.id).ok_or_else(changed)
}

/// Creates compute instances. Returns the id and the UUID of the only one of its instance.
fn create_parts(
    driver: &impl Mig,
    slice: &Slice,
    gi: u32,
    parts: &Parts,
) -> Result<Option<(u32, String)>> {
    let gpu = &slice.gpu_uuid;
    let mut made = Vec::new();
    for part in &parts.new {
        made.push(match parts.is_whole {
            true => driver.create_compute_instance(gpu, gi)?,
            false => driver.create_part(gpu, gi, *part)?,
        });
    }
    match made.as_slice() {
        [only] if parts.there == 0 => Ok(Some((*only, driver.mig_uuid(gpu, gi, *only)?))),
        _ => Ok(None),
    }
}

fn set(slice: &mut Slice, only: Option<(u32, String)>) {
    (slice.compute_instance, slice.mig_uuid) = only.unzip();
    slice.emptied = false;
}

/// Changes the record of an instance; an error where it is there no more.
fn record(
    context: &LeaseContext<'_>,
    instance: &Instance,
    change: impl FnOnce(&mut Instance),
) -> Result<Instance> {
    let ledger = context.store.lock("apply")?;
    let changed = ledger.update_instance(instance, change)?;
    changed.ok_or_else(|| Error::new("another process has removed its record"))
}
