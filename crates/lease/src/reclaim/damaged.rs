//! Releases records that cannot be read: damaged ones, and those of another version. runmig cannot tell
//! whether such a container lives, so gc does not collect its slice. A caller that knows that the container
//! is gone releases the slice by the record's name. Such callers are the container's hook, its delete and
//! the operator. gc releases a record whose name says that no container has it.
//! The driver shows the resource that a name tells.

use super::daemon;
use super::earlier_boot;
use super::finding::{Outcome, Patience};
use super::holder;
use super::liveness;
use super::release;
use crate::context::LeaseContext;
use crate::draft;
use crate::error::{self, Error, Result};
use crate::gpu::Queries;
use crate::model::{LeaseId, ListedInstance};
use crate::mps;
use crate::store::{
    Damaged, DamagedName, Instance, InstanceState, Key, Kind, Lease, LeaseState, Ledger, Origin,
    Place, Resource, Slice, WholeGpu,
};
use std::path::Path;

pub(crate) fn damaged(context: &LeaseContext<'_>) -> Result<Vec<Damaged>> {
    Ok(context.store.list()?.damaged)
}

/// Releases the unreadable lease of a hook.
pub(crate) fn release_damaged_of(
    context: &LeaseContext<'_>,
    lease: &LeaseId,
    bundle: &Path,
) -> Result<()> {
    let all = damaged(context)?;
    let Some(damaged) = all.iter().find(|d| d.id() == Some(lease.as_str())) else {
        return Ok(());
    };
    let restored = context.restore(bundle, lease).err();
    let released = release_damaged(context, damaged, Patience::default());
    match (released, restored) {
        (Err(e), restored) => Err(e.and(restored)),
        (Ok(()), restored) => restored.map_or(Ok(()), Err),
    }
}

/// Releases the unreadable leases of a delete, after the low-level runtime has deleted the container.
pub(super) fn release_damaged_with(context: &LeaseContext<'_>, key: &Key) -> Result<()> {
    let damaged = damaged(context)?;
    let its = damaged.iter().filter(|d| d.is_of(key));
    error::all(its.map(|d| {
        let lease = d.lease.as_ref();
        let lease = lease.filter(|l| l.state != LeaseState::Releasing);
        let lives = lease.and_then(|l| {
            liveness::lasting(liveness::AFTER_DELETE, || {
                holder::sign_of_life(&context.store, l)
            })
        });
        if let Some(life) = lives {
            return Err(Error::new(format!(
                "cannot release lease {}: {life}",
                d.id().unwrap_or_default()
            ))
            .hint("run migctl gc as root on the host once that is over"));
        }
        release_damaged(context, d, Patience::default())?;
        if d.lease.is_none() {
            // Only the record named the bundle.
            tracing::warn!(
                container = key.id,
                "its config.json stays as runmig edited it until the next create, since the record \
                 could not be read: {}",
                d.why.line()
            );
        }
        Ok(())
    }))
}

/// Releases the instance of a damaged record, for a caller that knows that the container is gone.
///
/// A readable record of the instance alone takes the place of the damaged ones, and is released like any
/// other. The driver confirms the end of the instance, runmig retries one in use, and a failure is on record.
pub(crate) fn release_damaged(
    context: &LeaseContext<'_>,
    damaged: &Damaged,
    patience: Patience,
) -> Result<()> {
    let restored = match &damaged.lease {
        Some(lease) => holder::after_release(context, lease),
        None => Ok(()),
    };
    let ended = known(damaged).and_then(|()| end_daemon(context, damaged));
    let released = ended.and_then(|()| match take_over(context, damaged)? {
        Some(instance) => {
            release::release_instance_unless(context, &instance, patience, |_| None).map(drop)
        }
        None => Ok(()),
    });
    error::all([released, restored])
}

/// Ends the MPS daemon that the lease may have. If it does not end, the records stay.
fn end_daemon(context: &LeaseContext<'_>, damaged: &Damaged) -> Result<()> {
    let Some(name) = damaged.share() else {
        return Ok(());
    };
    match mps::end(&daemon::home(context, &name.lease), false)? {
        None => Ok(()),
        Some(left) => Err(Error::new(format!("{left} of the MPS daemon does not end"))),
    }
}

/// Replaces damaged records by one of the instance alone. Returns none if there is no instance to destroy;
/// then it removes the records.
fn take_over(context: &LeaseContext<'_>, damaged: &Damaged) -> Result<Option<Instance>> {
    let place = damaged.place();
    let ends_instance =
        damaged.boot_id() == Some(&context.boot_id) && damaged.origin() != Origin::Administrator;
    // The look at the driver needs the GPU's lock, which comes before the ledger's.
    let resource = match place {
        Some(place) if ends_instance && read_instance(context, damaged).is_err() => {
            resource(context, damaged, place)?
        }
        _ => None,
    };
    // The lock of the ledger decides which of several leases is the last of an instance.
    let ledger = context.store.lock("release of a damaged lease")?;
    if !is_still(context, damaged)? {
        return Ok(None);
    }
    let has_others = has_other_users(context, damaged)?;
    let read = read_instance(context, damaged);
    let stays = has_others || matches!(&read, Ok(Some(instance)) if instance.is_of_layout());
    let is_alone = !stays && !is_anothers_place(context, damaged)?;
    let instance = match (read, resource) {
        _ if !is_alone || !ends_instance => None,
        (Ok(Some(instance)), _) => Some(Instance {
            state: match instance.state {
                quarantined @ InstanceState::Quarantined(_) => quarantined,
                _ => InstanceState::Releasing,
            },
            ..instance
        }),
        (_, Some(resource)) => Some(rebuilt(context, damaged, resource)?),
        (_, None) => None,
    };
    if let Some(instance) = &instance {
        ledger.put_instance(instance)?;
    }
    remove(context, &ledger, damaged, stays || instance.is_some())?;
    drop(ledger);
    // A kill leaves a lease without its instance, which can be read.
    if damaged.unfinished().is_none() {
        context.observer.damaged(damaged);
    }
    let lease = damaged.id();
    match &instance {
        Some(instance) => tracing::info!(
            instance = instance.id.as_str(),
            "releases the slice of a damaged record, {lease:?}"
        ),
        None => tracing::info!("the damaged record of {lease:?} is struck off"),
    }
    Ok(instance)
}

/// Returns the instance that the driver shows, under the id by which its records name it.
fn rebuilt(context: &LeaseContext<'_>, damaged: &Damaged, resource: Resource) -> Result<Instance> {
    let state = (Origin::Ours, InstanceState::Releasing);
    let new = draft::instance(context, resource, state)?;
    Ok(match damaged.instance() {
        Some(name) => Instance {
            id: name.instance.clone(),
            ..new
        },
        None => new,
    })
}

/// Removes the damaged records; that of the instance only where it does not stay.
fn remove(
    context: &LeaseContext<'_>,
    ledger: &Ledger<'_>,
    damaged: &Damaged,
    instance_stays: bool,
) -> Result<()> {
    if let Some(lease) = context.store.lease_file_of(damaged) {
        ledger.remove_file(&lease)?;
    }
    match context.store.instance_file_of(damaged) {
        Some(instance) if !instance_stays => ledger.remove_file(&instance).map(drop),
        _ => Ok(()),
    }
}

/// Returns the instance if its own record can be read; an error where it cannot.
fn read_instance(context: &LeaseContext<'_>, damaged: &Damaged) -> Result<Option<Instance>> {
    match damaged.instance() {
        Some(name) => context.store.instance_named(name),
        None => Err(Error::new("it has no record of an instance")),
    }
}

/// Returns whether the records are still damaged; false where they are gone.
fn is_still(context: &LeaseContext<'_>, damaged: &Damaged) -> Result<bool> {
    let now = damaged_now(context, damaged)?;
    let id = damaged.id().unwrap_or_default();
    match now {
        Some(_) => Ok(true),
        None if context.store.is_on_record(id)? => {
            Err(Error::new(format!("lease {id} can be read again")).hint("release it again"))
        }
        None => Ok(false),
    }
}

fn damaged_now(context: &LeaseContext<'_>, damaged: &Damaged) -> Result<Option<Damaged>> {
    let mut all = context.store.listing()?.damaged.into_iter();
    Ok(all.find(|d| d.name == damaged.name))
}

/// Removes records without a slice on the driver, releases slices without a container, reports the rest.
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
    known(damaged)?;
    let why = match over(context, damaged)? {
        Ok(why) => why,
        Err(kept) => return Ok(Outcome::Kept(kept)),
    };
    if !dry_run {
        release_damaged(context, damaged, patience)?;
    }
    Ok(Outcome::Released(why))
}

/// Returns the reason for which a collector may release a damaged record, or else the reason for which it
/// stays.
fn over(
    context: &LeaseContext<'_>,
    damaged: &Damaged,
) -> Result<std::result::Result<String, String>> {
    if damaged.is_nobodys() {
        let why = "its record is damaged, and no container has it";
        return Ok(Ok(why.to_owned()));
    }
    if let Some(lease) = &damaged.lease {
        // A promise is written under the ledger's lock, so no process is about to complete it.
        let is_half_written = lease.claim().is_some() && damaged.unfinished().is_some();
        let life = match lease.state {
            _ if is_half_written => None,
            LeaseState::Releasing => None,
            LeaseState::Pending | LeaseState::Ready => holder::sign_of_life(&context.store, lease),
        };
        let dead = match damaged.unfinished() {
            Some(_) => "a killed process left it without an instance",
            None => "the record of its instance is damaged, and its container is gone",
        };
        return Ok(life.map_or(Ok(dead.to_owned()), Err));
    }
    let is_there = match damaged.place() {
        None => false,
        Some(place) => {
            // An operation that is still at work finds its record gone and undoes its work.
            let _lock = context
                .store
                .lock_gpu(&place.gpu_uuid, "gc of a damaged lease")?;
            let driver = context.driver();
            // Other shares of the GPU prove nothing about this one.
            let is_anothers = damaged.origin() == Origin::Ours
                && damaged.booked_mib().is_none()
                && (is_anothers_place(context, damaged)? || is_held_alone(context, damaged)?);
            !is_anothers && is_there(&driver, damaged, place)?
        }
    };
    if !is_there {
        let why = "its record is damaged, and there is no slice at its place";
        return Ok(Ok(why.to_owned()));
    }
    Ok(Err(format!(
        "its record is damaged ({}), so whether its container lives is not known: when it is gone, \
             migctl release {}",
        damaged.why.line(),
        damaged.id().unwrap_or_default()
    )))
}

/// Returns whether another lease names the instance.
fn has_other_users(context: &LeaseContext<'_>, damaged: &Damaged) -> Result<bool> {
    let Some(instance) = damaged.instance() else {
        return Ok(false);
    };
    let leases = context.store.leases_on(&instance.instance)?;
    let mut others = leases
        .iter()
        .filter(|l| Some(l.lease.as_str()) != damaged.id());
    Ok(others.next().is_some())
}

/// Returns whether a readable lease has the instance for its container alone. The other leases of a pod's or claim's
/// instance prove nothing about this one's container.
fn is_held_alone(context: &LeaseContext<'_>, damaged: &Damaged) -> Result<bool> {
    let Some(name) = damaged.instance() else {
        return Ok(false);
    };
    let listing = context.store.listing()?;
    let mut on = listing.held().filter(|h| h.lease.instance == name.instance);
    let is_alone = |lease: &Lease| lease.shared_in.is_none() && lease.claim().is_none();
    Ok(on.any(|h| Some(h.lease.id.as_str()) != damaged.id() && is_alone(&h.lease)))
}

/// Returns whether the record of another instance names the place, so that nothing there is of this one.
fn is_anothers_place(context: &LeaseContext<'_>, damaged: &Damaged) -> Result<bool> {
    let store = &context.store;
    let Some(place) = damaged.place() else {
        return Ok(false);
    };
    let own = damaged.instance().map(|name| name.instance.as_str());
    let instances = store.instance_names()?;
    let mut others = instances
        .iter()
        .filter(|i| Some(i.instance.as_str()) != own);
    Ok(others.any(|other| other.place.overlaps(place)))
}

/// Fails for a file that runmig did not name.
fn known(damaged: &Damaged) -> Result<()> {
    let file = damaged.file.display();
    match damaged.name {
        DamagedName::Foreign => Err(Error::new(format!("{file} is not a record of runmig"))
            .hint("find the program that wrote it, then remove the file")),
        DamagedName::Lease(..) | DamagedName::Instance(_) => Ok(()),
    }
}

/// Returns the resource that the driver shows at a place. Returns none if there is nothing.
///
/// # Errors
/// The driver's.
pub(super) fn resource(
    context: &LeaseContext<'_>,
    damaged: &Damaged,
    place: &Place,
) -> Result<Option<Resource>> {
    Ok(match damaged.instance().map(|name| name.kind) {
        Some(Kind::Gpu) => gpu_of(context, place)?.map(Resource::Gpu),
        _ => slice_of(context, place)?.map(Resource::Mig),
    })
}

/// Returns the slice that the driver shows at a named place.
fn slice_of(context: &LeaseContext<'_>, place: &Place) -> Result<Option<Slice>> {
    let _lock = context
        .store
        .lock_gpu(&place.gpu_uuid, "release of a damaged lease")?;
    let driver = context.driver();
    let Some(instance) = at_its_place(&driver, place)? else {
        return Ok(None);
    };
    let gpu_uuid = &place.gpu_uuid;
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
    let label = driver.label(gpu_uuid, place.profile_id)?;
    Ok(Some(Slice {
        profile: label.profile,
        profile_id: place.profile_id,
        gpu_uuid: gpu_uuid.clone(),
        gpu_index: label.index,
        gpu_minor: label.minor,
        placement: place.placement,
        memory_mib: 0,
        gpu_instance: Some(instance.id),
        compute_instance: ci,
        mig_uuid: ci.map(uuid).transpose()?,
        emptied: false,
    }))
}

/// Returns whether the driver shows the resource at its place. A whole GPU counts as there.
pub(super) fn is_there(driver: &impl Queries, damaged: &Damaged, place: &Place) -> Result<bool> {
    match damaged.instance().map(|name| name.kind) {
        Some(Kind::Gpu) => Ok(true),
        _ => Ok(at_its_place(driver, place)?.is_some()),
    }
}

/// Returns the named GPU, if the driver shows it. The record lives as long as its release, so it has no use
/// for the memory.
fn gpu_of(context: &LeaseContext<'_>, place: &Place) -> Result<Option<WholeGpu>> {
    let gpus = context.driver().snapshot()?.gpus;
    let gpu = gpus.into_iter().find(|g| g.uuid == place.gpu_uuid);
    Ok(gpu.map(|gpu| WholeGpu::of(&gpu, 0)))
}

fn at_its_place(driver: &impl Queries, place: &Place) -> Result<Option<ListedInstance>> {
    let there = driver.instances_of(&place.gpu_uuid, place.profile_id)?;
    Ok({ there.into_iter() }.find(|i| i.placement == place.placement))
}
