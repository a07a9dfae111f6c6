//! Releases records that cannot be read: damaged ones, and those of another version. runmig cannot tell
//! whether such a container lives, so gc does not collect its slice. A caller that knows that the container
//! is gone releases the slice by the record's name. Such callers are the container's hook, its delete and
//! the operator. gc releases a record whose name says that no container has it.

use super::finding::Outcome;
use super::patience::Patience;
use super::{earlier_boot, release};
use crate::context::LeaseContext;
use crate::draft;
use crate::error::{self, Error, Result};
use crate::gpu::Queries;
use crate::model::ListedInstance;
use crate::store::{Damaged, Key, Lease, Ownership, RecordName, Slice};
use std::path::Path;

pub(crate) fn damaged(context: &LeaseContext<'_>) -> Result<Vec<Damaged>> {
    Ok(context.store.list()?.1)
}

/// Releases the unreadable lease of a hook.
pub(crate) fn release_damaged_of(
    context: &LeaseContext<'_>,
    lease: &str,
    bundle: &Path,
) -> Result<()> {
    let all = damaged(context)?;
    let is_it = |d: &&Damaged| d.name.as_ref().is_some_and(|c| c.lease == lease);
    let Some(damaged) = all.iter().find(is_it) else {
        return Ok(());
    };
    let restored = context.restore(bundle, lease).err();
    let given_back = release_damaged(context, damaged, Patience::default());
    match (given_back, restored) {
        (Err(e), restored) => Err(e.and(restored)),
        (Ok(()), restored) => restored.map_or(Ok(()), Err),
    }
}

/// Releases the unreadable leases of a delete, after the low-level runtime has deleted the container.
pub(super) fn release_damaged_with(context: &LeaseContext<'_>, key: &Key) -> Result<()> {
    let is_its = |d: &&Damaged| d.name.as_ref().is_some_and(|c| c.is_of(key));
    let damaged = damaged(context)?;
    let its = damaged.iter().filter(is_its);
    error::all(its.map(|d| {
        release_damaged(context, d, Patience::default())?;
        // Only the record named the bundle.
        tracing::warn!(
            container = key.id,
            "its config.json stays as runmig edited it until the next create, since the record \
                 could not be read: {}",
            d.why.line()
        );
        Ok(())
    }))
}

/// Releases the slice of a damaged record, for a caller that knows that the container is gone.
///
/// A lease without a container replaces the record, and is released like any other. The driver confirms the
/// end of its instance, runmig retries an instance in use, and a failure is on record.
pub(crate) fn release_damaged(
    context: &LeaseContext<'_>,
    damaged: &Damaged,
    patience: Patience,
) -> Result<()> {
    match take_over_damaged(context, damaged)? {
        Some(lease) => release::release(context, &lease.id, patience),
        None => Ok(()),
    }
}

/// Replaces a damaged record by a lease without a container. Returns none if there is no instance to
/// destroy; then it removes the record.
fn take_over_damaged(context: &LeaseContext<'_>, damaged: &Damaged) -> Result<Option<Lease>> {
    let name = name_of(damaged)?;
    let ends_instance = name.boot_id == context.boot_id && name.ownership != Ownership::Adopted;
    let slice = match ends_instance {
        true => slice_of(context, name)?,
        false => None,
    };
    // The lock of the ledger decides which of several records is the last of an instance.
    let ledger = context.store.lock("release of a damaged lease")?;
    if !context.store.is_damaged(damaged) {
        return match context.store.get(&name.lease)? {
            None => Ok(None),
            Some(_) => Err(
                Error::new(format!("lease {} can be read again", name.lease))
                    .hint("release it again"),
            ),
        };
    }
    let slice = match is_named_by_others(context, name)? {
        true => None,
        false => slice,
    };
    let Some(slice) = slice else {
        ledger.remove_damaged(damaged)?;
        tracing::info!(lease = name.lease, "its damaged record is struck off");
        return Ok(None);
    };
    let lease = draft::of_nobody(context, slice)?;
    ledger.replace_damaged(damaged, &lease)?;
    tracing::info!(
        lease = lease.id,
        "gives back the slice of the damaged lease {}",
        name.lease
    );
    Ok(Some(lease))
}

/// Returns the slice that the driver shows at a named place.
fn slice_of(context: &LeaseContext<'_>, name: &RecordName) -> Result<Option<Slice>> {
    let _lock = context
        .store
        .lock_gpu(&name.gpu_uuid, "release of a damaged lease")?;
    let driver = context.driver();
    let Some(instance) = at_its_place(&driver, name)? else {
        return Ok(None);
    };
    let gpu_uuid = &name.gpu_uuid;
    let ci = match instance.compute_instances.as_slice() {
        [] => None,
        [only] => Some(only.id),
        many => {
            return Err(Error::new(format!(
                "cannot tell which of {} compute instances of GPU instance {} on GPU {gpu_uuid} \
                     is the slice's",
                many.len(),
                instance.id
            ))
            .hint("destroy those that others made (nvidia-smi mig -dci), then try again"));
        }
    };
    let uuid = |ci| driver.mig_uuid(gpu_uuid, instance.id, ci);
    let label = driver.label(gpu_uuid, name.profile_id)?;
    Ok(Some(Slice {
        request: label.profile.clone(),
        profile: label.profile,
        profile_id: name.profile_id,
        gpu_uuid: gpu_uuid.clone(),
        gpu_index: label.index,
        gpu_minor: label.minor,
        placement: name.placement,
        gpu_instance: Some(instance.id),
        compute_instance: ci,
        mig_uuid: ci.map(uuid).transpose()?,
        emptied: false,
    }))
}

/// Removes the records without a slice on the driver, and releases the slices without a container. It
/// reports the rest.
pub(super) fn look_through(
    context: &LeaseContext<'_>,
    damaged: Vec<Damaged>,
    dry_run: bool,
    patience: impl Fn() -> Patience,
) -> Vec<(Damaged, Outcome)> {
    let is_earlier = |d: &Damaged| earlier_boot::is_damaged_of_it(context, d);
    let (earlier, damaged): (Vec<_>, Vec<_>) = damaged.into_iter().partition(is_earlier);
    let look = |damaged: Damaged| {
        let outcome = look_at_damaged(context, &damaged, dry_run, patience());
        (damaged, outcome.unwrap_or_else(Outcome::Failed))
    };
    let mut found = earlier_boot::strike_off_damaged(context, earlier, dry_run);
    found.extend(damaged.into_iter().map(look));
    found
}

fn look_at_damaged(
    context: &LeaseContext<'_>,
    damaged: &Damaged,
    dry_run: bool,
    patience: Patience,
) -> Result<Outcome> {
    if name_of(damaged)?.is_nobodys() {
        if !dry_run {
            release_damaged(context, damaged, patience)?;
        }
        let why = "its record is damaged, and no container has it";
        return Ok(Outcome::Released(why.to_owned()));
    }
    Ok(match has_nothing(context, damaged)? {
        Ok(why) => {
            if !dry_run {
                let ledger = context.store.lock("gc of a damaged lease")?;
                if context.store.is_damaged(damaged) {
                    ledger.remove_damaged(damaged)?;
                }
            }
            Outcome::Released(why)
        }
        Err(kept) => Outcome::Kept(kept),
    })
}

/// Returns the reason for which a damaged record may be removed, or else the reason for which it stays.
fn has_nothing(
    context: &LeaseContext<'_>,
    damaged: &Damaged,
) -> Result<std::result::Result<String, String>> {
    let name = name_of(damaged)?;
    // A creator that is still at work finds its record gone and undoes its work.
    let _lock = context
        .store
        .lock_gpu(&name.gpu_uuid, "gc of a damaged lease")?;
    let driver = context.driver();
    let there = match name.ownership {
        Ownership::Own if is_named_by_others(context, name)? => None,
        // Other leases at the same place prove nothing about this one's container.
        Ownership::Own | Ownership::Adopted | Ownership::Shared | Ownership::Unknown => {
            at_its_place(&driver, name)?
        }
    };
    if there.is_none() {
        return Ok(Ok(
            "its record is damaged, and there is no slice at its place".to_owned(),
        ));
    }
    Ok(Err(format!(
        "its record is damaged ({}), so whether its container lives is not known: when it is gone, \
             migctl release {}",
        damaged.why.line(),
        name.lease
    )))
}

/// Returns whether another lease has the named place.
fn is_named_by_others(context: &LeaseContext<'_>, name: &RecordName) -> Result<bool> {
    let others = context.store.neighbours(name)?;
    let mut unreadable = others.unreadable.iter();
    // A lease without a container yields to another unreadable record.
    Ok(!others.leases.is_empty()
        || unreadable.any(|c| c.ownership == Ownership::Shared || name.is_nobodys()))
}

fn at_its_place(driver: &impl Queries, name: &RecordName) -> Result<Option<ListedInstance>> {
    let there = driver.instances_of(&name.gpu_uuid, name.profile_id)?;
    Ok({ there.into_iter() }.find(|i| i.placement == name.placement))
}

fn name_of(damaged: &Damaged) -> Result<&RecordName> {
    let file = damaged.file.display();
    match &damaged.name {
        Some(name) if name.ownership != Ownership::Unknown => Ok(name),
        // runmig does not give out its place, and knows no more of it.
        Some(_) => Err(Error::new(format!("{file} is a lease of a newer runmig"))
            .hint("give it back with the runmig that wrote it")),
        None => Err(Error::new(format!("{file} is no lease of ours"))
            .hint("remove the file; nothing depends on it")),
    }
}
