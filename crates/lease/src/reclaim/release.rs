//! Releases a lease, or an instance without one. It destroys the instance, has the driver confirm the end, and
//! only then removes the records.

use super::destroy::{self, Ended, Target};
use super::finding::Patience;
use super::holder;
use super::layout;
use crate::context::{LeaseContext, now};
use crate::error::{self, Context, Error, Result};
use crate::model::{InstanceId, Timestamp};
use crate::store::{
    Attempt, Held, Instance, InstanceName, InstanceState, Kind, Lease, LeaseState, Slice,
};
use std::time::{Duration, Instant, SystemTime};

/// The longest gap between retries of a failed destroy. The gap starts at 2 s and doubles each time.
const MAX_GAP: Duration = Duration::from_secs(300);

/// The number of a slice's holders in a record. They inform people, and the record needs a size limit.
const MAX_HOLDERS: usize = 32;

/// The number of changes to a record during its judgement. No living process changes a record this often.
const MAX_LOOKS: usize = 16;

/// The outcome of a release.
#[derive(Debug, PartialEq, Eq)]
pub enum Returned {
    /// The lease is gone, now or before.
    Yes,
    /// The release did nothing, for this reason.
    No(String),
}

/// Releases a lease in any state. A missing lease is no error.
pub(crate) fn release(context: &LeaseContext<'_>, held: &Held, patience: Patience) -> Result<()> {
    release_unless(context, held, patience, |_| None).map(drop)
}

/// Releases a lease unless `against` gives a reason. `against` runs without a lock, because no process may
/// wait while it looks at processes. So its answer counts only if the records are unchanged under the
/// ledger's lock. A record read during the creator's life may not name the low-level runtime that outlives
/// it. After the mark no process adds such a fact.
pub(crate) fn release_unless(
    context: &LeaseContext<'_>,
    held: &Held,
    patience: Patience,
    against: impl Fn(&Lease) -> Option<String>,
) -> Result<Returned> {
    let (mut held, mut looks, begun) = (held.clone(), 0, Instant::now());
    let ledger = loop {
        if let Some(why) = against(&held.lease) {
            return Ok(Returned::No(why));
        }
        let ledger = context.store.lock("release")?;
        let Some(now) = context.store.held_now(&held)? else {
            return Ok(Returned::Yes);
        };
        if now == held {
            break ledger;
        }
        looks += 1;
        if looks == MAX_LOOKS {
            return Ok(Returned::No("its record changes all the time".to_owned()));
        }
        held = now;
    };
    // runmig keeps only a slice that is released for the first time. A slice that could not be destroyed is
    // unfit.
    let keeps = held.lease.state != LeaseState::Releasing;
    held.lease.state = LeaseState::Releasing;
    // A mark that cannot be written (a full disk) does not stop the release. The container is gone in any
    // case, and the next release starts from the beginning.
    if let Err(e) = ledger.put_lease(&held.lease) {
        // Without the mark another container could share this slice, so the release stops.
        let is_seat = held.lease.share().is_some() && held.instance.slice().is_some();
        if held.lease.shared_in.is_some() || held.lease.claim().is_some() || is_seat {
            return Err(e);
        }
        tracing::warn!(lease = held.lease.id.as_str(), "{}", e.line());
    }
    drop(ledger);
    finish(context, (&held, begun), patience, keeps).map(|()| Returned::Yes)
}

fn finish(
    context: &LeaseContext<'_>,
    (held, begun): (&Held, Instant),
    patience: Patience,
    keeps: bool,
) -> Result<()> {
    let lease = &held.lease;
    // runmig restores the bundle even if the driver refuses the destroy. The two do not depend on each
    // other, and the release reports every failure.
    let restore = || holder::after_release(context, lease).err();
    // A read may fail once. Without the lease, only the next create restores the original.
    let restored = restore().and_then(|_| restore());
    match keeps.then(|| layout::keep_idle(context, held, begun)) {
        Some(Ok(true)) => return restored.map_or(Ok(()), Err),
        Some(Err(e)) => tracing::warn!(lease = lease.id.as_str(), "not kept idle: {}", e.line()),
        Some(Ok(false)) | None => {}
    }
    let target = Target {
        instance: &held.instance,
        lease: Some(lease),
        begun,
    };
    let ended = end(context, target, patience);
    if ended.is_ok() {
        tracing::info!(
            lease = lease.id.as_str(),
            container = lease.holder.name(),
            "{held} is released"
        );
    }
    error::all([ended, restored.map_or(Ok(()), Err)])
}

/// Releases an instance without a lease unless `against` gives a reason, which it gives under the ledger's
/// lock. An instance that is gone or has a lease by then is no error.
pub(crate) fn release_instance_unless(
    context: &LeaseContext<'_>,
    instance: &Instance,
    patience: Patience,
    against: impl Fn(&Instance) -> Option<String>,
) -> Result<Returned> {
    let begun = Instant::now();
    let instance = {
        let ledger = context.store.lock("release")?;
        let Some(mut instance) = context.store.instance_now(instance)? else {
            return Ok(Returned::Yes);
        };
        if destroy::has_other_users(context, &instance, None)? {
            return Ok(Returned::No("a container has it".to_owned()));
        }
        if let Some(why) = against(&instance).or_else(|| layout::keeper(context, &instance)) {
            return Ok(Returned::No(why));
        }
        let is_idle = instance.idle_since().is_some();
        if instance.attempt().is_none() && instance.state != InstanceState::Releasing {
            instance.state = InstanceState::Releasing;
            if let Err(e) = ledger.put_instance(&instance) {
                // Without the mark another container could take an idle slice, so the release stops.
                if is_idle {
                    return Err(e);
                }
                tracing::warn!(instance = instance.id.as_str(), "{}", e.line());
            }
        }
        instance
    };
    let target = Target {
        instance: &instance,
        lease: None,
        begun,
    };
    end(context, target, patience)?;
    tracing::info!(
        instance = instance.id.as_str(),
        "{} is released",
        instance.resource
    );
    Ok(Returned::Yes)
}

/// Destroys an instance and removes its records, and then its parent's unless others use that. On a failure it
/// quarantines the instance. The two ends share the patience.
fn end(context: &LeaseContext<'_>, target: Target<'_>, patience: Patience) -> Result<()> {
    let begun = Instant::now();
    if target.instance.attempt().is_some() {
        context.observer.retried(target.instance);
    }
    match destroy::destroy_instance(context, target, patience) {
        Ok(Ended::Elsewhere) => Ok(()),
        Ok(Ended::Gone) => {
            let ledger = context.store.lock("release")?;
            let released = target.lease.map(|lease| ledger.remove_lease(lease));
            let released = released.transpose()?.unwrap_or(false);
            // A share may have come meanwhile if the mark could not be written.
            let others = destroy::has_other_users(context, target.instance, target.lease);
            // An unreadable record belongs to no layout: then nothing would end it.
            let now = context.store.instance_now(target.instance);
            let stays = matches!(&now, Ok(Some(instance)) if instance.is_of_layout());
            let removed = match others {
                Ok(false) if !stays => ledger.remove_instance(target.instance),
                _ => Ok(false),
            };
            drop(ledger);
            if let Some(lease) = target.lease.filter(|_| released) {
                context
                    .observer
                    .released(lease, target.instance, target.begun);
            }
            if removed? {
                if target.instance.attempt().is_some() {
                    context.observer.recovered(target.instance);
                }
                if target.lease.is_none() {
                    context.observer.removed(target.instance, target.begun);
                }
            }
            if others? {
                return Ok(());
            }
            let parent = target.instance.parent.as_ref();
            let slice = target.instance.resource.mig_slice();
            end_parent(context, (parent, slice), patience.left(begun))
        }
        Err(e) => Err(quarantine(context, target, e)),
    }
}

/// Releases the slice of a seat whose daemon is gone. A kill before this leaves it to a collector. `slice` is the copy
/// in the daemon's record, if that can be read.
pub(super) fn end_parent(
    context: &LeaseContext<'_>,
    (parent, slice): (Option<&InstanceId>, Option<&Slice>),
    patience: Patience,
) -> Result<()> {
    let Some(id) = parent else {
        return Ok(());
    };
    match context.store.instance_with(id) {
        Ok(Some(parent)) => release_instance_unless(context, &parent, patience, |_| None).map(drop),
        Ok(None) => match slice {
            // Another seat that ended meanwhile may have ended it.
            Some(slice) => check_lost(context, slice),
            None => {
                tracing::warn!(
                    "slice {id} of the seat is not on record, and may still be there; hint: compare nvidia-smi mig -lgi with \
                     migctl list, and destroy it with nvidia-smi mig"
                );
                Ok(())
            }
        },
        Err(e) => {
            // A collector releases it by its name.
            tracing::warn!(instance = id.as_str(), "{}", e.line());
            Ok(())
        }
    }
}

/// Fails if a slice of which no record tells is there. Other containers may have seats in it, whose records are lost
/// too, so an operator has to destroy it.
fn check_lost(context: &LeaseContext<'_>, slice: &Slice) -> Result<()> {
    let error = |cause: Error| {
        let command = destroy::command(slice);
        let command =
            command.unwrap_or_else(|| "compare nvidia-smi mig -lgi with migctl list".to_owned());
        let what = || format!("release {slice} of the seat");
        Err(cause.hint(command)).context(what)
    };
    match destroy::locate(&context.driver(), slice) {
        Ok(None) => return Ok(()),
        Ok(Some(_)) => {}
        Err(e) => {
            return error(Error::new("the driver does not tell whether it is there").caused_by(e));
        }
    }
    // A slice that another create made there meanwhile is on record.
    let names = context.store.instance_names()?;
    let is_there = |name: &InstanceName| {
        let place = &name.place;
        name.kind == Kind::Mig
            && place.gpu_uuid == slice.gpu_uuid
            && place.placement.overlaps(slice.placement)
    };
    match names.iter().any(is_there) {
        true => Ok(()),
        false => error(Error::new(
            "it is not on record, and containers may have seats in it",
        )),
    }
}

fn quarantine(context: &LeaseContext<'_>, target: Target<'_>, e: Error) -> Error {
    let instance = target.instance;
    let holders = destroy::holders(context, instance);
    let unseen = holders
        .unseen
        .map(|why| Error::new(format!("cannot tell whether more processes hold it: {why}")));
    let e = e.and(unseen);
    let held_by = holders.seen.into_iter().take(MAX_HOLDERS);
    let held_by = held_by.map(|(pid, name)| format!("{pid} {name}")).collect();
    if instance.attempt().is_none() {
        context.observer.quarantined(target.lease, instance, &e);
    }
    let noted = destroy::mark(context, instance, |i| {
        i.state = InstanceState::Quarantined(next_attempt(i.attempt(), &e, held_by));
    });
    tracing::warn!(instance = instance.id.as_str(), "{}", e.line());
    e.and(noted.err())
}

fn next_attempt(last: Option<&Attempt>, e: &Error, held_by: Vec<String>) -> Attempt {
    let count = last.map_or(0, |a| a.count) + 1;
    let gap = Duration::from_secs(1u64 << count.min(20)).min(MAX_GAP);
    Attempt {
        count,
        error: e.line(),
        held_by,
        next: Timestamp::seconds(SystemTime::now() + gap),
    }
}

/// Returns whether gc may now retry an instance whose release failed.
pub(super) fn is_due(instance: &Instance) -> bool {
    instance.attempt().is_none_or(|a| a.next <= now())
}
