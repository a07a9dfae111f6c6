//! The only path that ends a lease's daemon and destroys an instance. It locates the instance, destroys it, and
//! confirms with the driver that it is gone.

use super::daemon;
use super::finding::Patience;
use crate::counters::ResourceKind;
use crate::error::{Error, Result};
use crate::gpu::{DriverError, Mig, Queries, Session, device_nodes};
use crate::idle;
use crate::leases::Leases;
use crate::model::ListedInstance;
use crate::observer::Ends;
use crate::process::{self, Holders};
use crate::store::{Attempt, Instance, InstanceState, Lease, Lock, Resource, Slice, State};
use std::time::{Duration, Instant};

/// The longest time between two tries to destroy an instance that is in use.
const MAX_GAP: Duration = Duration::from_millis(500);

/// An instance on record, and the lease whose release ends it.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub instance: &'a Instance,
    /// None for an instance without a lease.
    pub lease: Option<&'a Lease>,
    /// The begin of its release.
    pub begun: Instant,
}

impl Target<'_> {
    /// Removes the lease.
    pub(super) fn remove_lease(&self, state: &mut State, ends: &mut Ends) {
        let Some(lease) = self.lease.filter(|lease| state.remove_lease(&lease.id)) else {
            return;
        };
        ends.release(Some(lease), self.instance, self.begun);
        if lease.attempt().is_some() {
            ends.recovered(Some(lease), self.instance);
        }
    }

    /// Returns the failed attempts to end the instance, or the MPS daemon before it.
    pub(super) fn attempt(&self) -> Option<&Attempt> {
        self.instance
            .attempt()
            .or(self.lease.and_then(Lease::attempt))
    }
}

/// The outcome of a destroy.
#[must_use]
pub(crate) enum Ended {
    /// The records may go. Until they have gone nobody else works on the GPU: others may make an instance with the same ids
    /// at the place, which a second release would take for this one.
    Gone(Option<Lock>),
    /// Another process or another lease has the records.
    Elsewhere,
}

/// Ends the MPS daemon of a lease, then destroys its instance on record, unless that outlives the lease: another
/// lease names it. An administrator's instance stays, and only its records may go.
pub(crate) fn destroy_instance(
    context: &Leases<'_>,
    target: Target<'_>,
    patience: Patience,
) -> Result<Ended> {
    let instance = target.instance;
    let daemon = target.lease.filter(|lease| lease.daemon().is_some());
    if instance.outlives_leases() && daemon.is_none() {
        return Ok(match is_last(context, target)? {
            true => Ended::Gone(None),
            false => Ended::Elsewhere,
        });
    }
    let end = Instant::now() + patience.0;
    let mut gap = Duration::from_millis(10);
    let mut session = None;
    loop {
        match try_destroy(context, target, &mut session)? {
            Ok(ended) => return Ok(ended),
            // Not only the driver refuses: a process of the MPS daemon may live on.
            Err(e) if (e.is_passing() || !e.is_of_driver()) && Instant::now() + gap < end => {
                context.observer.retried(match e.is_of_driver() {
                    true => ResourceKind::of(&instance.resource),
                    false => ResourceKind::Mps,
                });
                crate::effect::pause(gap);
                gap = (gap * 2).min(MAX_GAP);
                if Instant::now() + gap >= end {
                    // This process's own session may hold the instance, so the last try opens a new one.
                    session = None;
                }
            }
            Err(e) => return Err(e),
        }
    }
}

/// Makes one try under the GPU's lock. So no other process waits for the holders of this instance. The inner error says why the
/// instance is not destroyed yet.
fn try_destroy<'a>(
    context: &'a Leases<'_>,
    target: Target<'_>,
    session: &mut Option<Session<'a>>,
) -> Result<Result<Ended>> {
    let gpu = target.instance.resource.gpu_uuid();
    let by = target.lease.map_or("an instance", |l| l.holder.name());
    let lock = context.store.lock_gpu(gpu, &format!("release of {by}"))?;
    if let Some(lease) = target.lease
        && let Some(left) = daemon::end(context, lease)?
    {
        let on = &target.instance.resource;
        let lives = Error::new(format!("{left} of the MPS daemon on {on} does not end"));
        return Ok(Err(lives));
    }
    let now = context.store.instance_now(target.instance)?;
    if !is_last(context, target)? {
        return Ok(Ok(Ended::Elsewhere));
    }
    // While this one waited for the GPU, another process may have released it, or a layout may have taken it over.
    let Some(instance) = now.filter(|now| !now.outlives_leases()) else {
        return Ok(Ok(Ended::Gone(Some(lock))));
    };
    // Prepare may have begun since the caller read the lease.
    let lease = target.lease.map(|lease| context.store.lease_now(lease));
    let has_not_begun = { lease.transpose()?.flatten() }.is_some_and(|l| l.has_not_begun());
    let driver = session.get_or_insert_with(|| context.driver());
    let destroyed = match &instance.resource {
        // An instance at the place of a mere promise or plan is foreign.
        Resource::Mig(_)
            if instance.planned || instance.state == InstanceState::Creating && has_not_begun =>
        {
            Ok(())
        }
        Resource::Mig(slice) => {
            let emptied = || mark(context, &instance, |i| i.change_slice(|s| s.emptied = true));
            let parts = match instance.layout {
                // From the first one on, a collector ends what an apply leaves.
                Some(_) => destroy_parts(driver, slice, || {
                    mark(context, &instance, |i| i.operation = None)
                })?,
                None => Ok(()),
            };
            let destroyed = match parts {
                Ok(()) => destroy(driver, slice, emptied)?,
                refused => refused,
            };
            destroyed.map_err(Error::from)
        }
        // A GPU stays. Only its records go.
        Resource::Gpu(_) => Ok(()),
    };
    Ok(destroyed.map(|()| Ended::Gone(Some(lock))))
}

/// Returns whether the resource of an instance exists, and is the one on record.
pub(crate) fn exists(driver: &impl Queries, instance: &Instance) -> Result<bool> {
    match &instance.resource {
        Resource::Mig(slice) => Ok(locate(driver, slice)?.is_some()),
        Resource::Gpu(_) => {
            let snapshot = driver.snapshot()?;
            let is_there = idle::is_there(&snapshot, instance);
            match snapshot.unreadable.first() {
                // It may be the one that cannot be read.
                Some((_, why)) if !is_there => Err(Error::new(why.clone())),
                _ => Ok(is_there),
            }
        }
    }
}

/// Returns whether both instances of a slice exist, and are those on record. An administrator may destroy the compute
/// instance alone.
pub(crate) fn is_whole(driver: &impl Queries, slice: &Slice) -> Result<bool> {
    let there = locate(driver, slice)?;
    Ok(there.is_some_and(|there| compute_instance(slice, &there).is_some()))
}

/// Destroys the instance of a slice if it exists: the compute instance, then the GPU instance. The driver's
/// lists confirm that each is gone. `emptied` records that the compute instance is gone.
pub(crate) fn destroy(
    driver: &impl Mig,
    slice: &Slice,
    emptied: impl FnOnce() -> Result<()>,
) -> Result<Result<(), DriverError>> {
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
    } else if slice.compute_instance.is_none() && !slice.emptied {
        // Half-made: what has a compute instance at its place from now on is another one. One look alone may err.
        let again = locate(driver, slice)?;
        if again.is_some_and(|i| i.compute_instances.is_empty()) {
            emptied()?;
        }
    }
    let destroyed = driver.destroy_gpu_instance(gpu, instance.id);
    let left = match driver.instances_of(gpu, instance.profile_id) {
        Err(_) if destroyed.is_err() => return Ok(destroyed),
        left => left?,
    };
    let is_it = |i: &ListedInstance| (i.id, i.placement) == (instance.id, instance.placement);
    match (left.iter().any(is_it), destroyed) {
        // The driver may report an error of a destroy that it did. Later another's may be at the place.
        (false, _) => Ok(Ok(())),
        (true, Err(e)) => Ok(Err(e)),
        (true, Ok(())) => Err(still_there("the", slice)),
    }
}

/// Destroys every compute instance of an instance of a layout, which may have several. The driver's list confirms that
/// each is gone.
fn destroy_parts(
    driver: &impl Mig,
    slice: &Slice,
    begun: impl FnOnce() -> Result<()>,
) -> Result<Result<(), DriverError>> {
    let mut begun = Some(begun);
    let gpu = &slice.gpu_uuid;
    let Some(instance) = locate(driver, slice)? else {
        return Ok(Ok(()));
    };
    for ci in &instance.compute_instances {
        if let Err(e) = driver.destroy_compute_instance(gpu, instance.id, ci.id) {
            return Ok(Err(e));
        }
        begun.take().map_or(Ok(()), |begun| begun())?;
    }
    let left = locate(driver, slice)?;
    match left.filter(|instance| !instance.compute_instances.is_empty()) {
        Some(_) => Err(still_there("a compute instance of the", slice)),
        None => Ok(Ok(())),
    }
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

/// Returns the command by which an operator destroys the instance of a slice, if both of its ids are known.
pub(super) fn command(slice: &Slice) -> Option<String> {
    let (gpu, gi, ci) = (
        &slice.gpu_uuid,
        slice.gpu_instance?,
        slice.compute_instance?,
    );
    Some(format!(
        "once no container uses it, nvidia-smi mig -i {gpu} -gi {gi} -ci {ci} -dci && nvidia-smi mig -i {gpu} -gi {gi} \
         -dgi"
    ))
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

/// Returns whether the instance ends with this lease. If another lease names it, the lease ends alone. The ledger's lock
/// decides which lease is the last.
fn is_last(context: &Leases<'_>, target: Target<'_>) -> Result<bool> {
    let (id, its) = (&target.instance.id, target.lease.map(|lease| &lease.id));
    context.end(&context.store.lock("release")?, |state, ends| {
        let is_on_record = its.is_none_or(|its| state.lease(its).is_some());
        let has_others = state.has_others(id, its);
        if has_others {
            target.remove_lease(state, ends);
        }
        Ok(is_on_record && !has_others)
    })
}

/// Returns the processes that have the capabilities of a slice open, if there is one.
pub(crate) fn holders(context: &Leases<'_>, slice: Option<&Slice>) -> Holders {
    let Some((slice, gi)) = slice.and_then(|slice| Some((slice, slice.gpu_instance?))) else {
        return Holders::default();
    };
    let root = &context.config.driver.root;
    let (files, devices) = device_nodes::capabilities_of(root, slice.gpu_minor, gi);
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
    context: &Leases<'_>,
    instance: &Instance,
    change: impl FnOnce(&mut Instance),
) -> Result<()> {
    let ledger = context.store.lock("release")?;
    if let Err(e) = ledger.update_instance(instance, change) {
        context.store.instance_now(instance)?;
        tracing::warn!(instance = instance.id.as_str(), "{}", e.line());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::instance;

    #[test]
    fn operator_gets_a_command_for_a_known_instance() {
        let mut one = instance("one");
        assert_eq!(one.slice().and_then(command), None);
        one.change_slice(|slice| slice.compute_instance = Some(0));
        let told = one.slice().and_then(command).unwrap();
        assert!(
            told.ends_with(
                "nvidia-smi mig -i GPU-1 -gi 10 -ci 0 -dci && nvidia-smi mig -i GPU-1 -gi 10 -dgi"
            ),
            "{told}"
        );
        let line = still_there("the", one.slice().unwrap()).line();
        assert!(
            line.starts_with("the GPU instance at 3:1 on GPU GPU-1 is still there"),
            "{line}"
        );
    }
}
