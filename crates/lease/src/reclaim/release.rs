//! Releases a lease, or an instance without one. It ends the MPS daemon of the lease, destroys the instance after the
//! last lease, has the driver confirm the end, and only then removes the records.

use super::destroy::{self, Ended, Target};
use super::finding::{Finding, Outcome, Patience};
use super::{daemon, layout};
use crate::counters::ResourceKind;
use crate::error::{self, Error, Result};
use crate::leases::{Leases, now};
use crate::model::{LeaseId, Timestamp};
use crate::store::{Attempt, Entry, Held, Holder, Instance, InstanceState, Lease, LeaseState};
use std::collections::HashSet;
use std::sync::Arc;
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
pub(crate) fn release(context: &Leases<'_>, held: &Held, patience: Patience) -> Result<()> {
    context.release_unless(held, patience, |_| None).map(drop)
}

impl Leases<'_> {
    /// Releases a lease unless `against` gives a reason. `against` runs without a lock, because no process may
    /// wait while it looks at processes. So its answer counts only if the records are unchanged under the
    /// ledger's lock. A record read during the creator's life may not name the low-level runtime that outlives
    /// it. After the mark no process adds such a fact.
    pub fn release_unless(
        &self,
        held: &Held,
        patience: Patience,
        against: impl Fn(&Lease) -> Option<String>,
    ) -> Result<Returned> {
        let (mut held, mut looks, begun) = (held.clone(), 0, Instant::now());
        let ledger = loop {
            if let Some(why) = against(&held.lease) {
                return Ok(Returned::No(why));
            }
            let ledger = self.store.lock("release")?;
            let Some(now) = self.store.get(&held.lease.id)? else {
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
        Arc::make_mut(&mut held.lease).state = LeaseState::Releasing;
        // A mark that cannot be written (a full disk) does not stop the release. The container is gone in any
        // case, and the next release starts from the beginning.
        if let Err(e) = ledger.put_lease(held.lease.clone()) {
            // Without the mark another container could share this slice, so the release stops.
            let is_seat = held.lease.share().is_some() && held.instance.slice().is_some();
            if held.lease.shared_in.is_some() || held.lease.claim().is_some() || is_seat {
                return Err(e);
            }
            tracing::warn!(lease = held.lease.id.as_str(), "{}", e.line());
        }
        drop(ledger);
        finish(self, &held, begun, patience, keeps).map(|()| Returned::Yes)
    }

    /// Releases an instance without a lease.
    pub fn release_instance(&self, instance: &Instance, patience: Patience) -> Result<Returned> {
        release_instance_unless(self, instance, patience, |_| None)
    }
}

/// Does what the holder needs after its lease. A read may fail once, and without the lease only the next create restores
/// the original.
fn restore(context: &Leases<'_>, lease: &Lease) -> Result<()> {
    after_release(context, lease).or_else(|_| after_release(context, lease))
}

fn finish(
    context: &Leases<'_>,
    held: &Held,
    begun: Instant,
    patience: Patience,
    keeps: bool,
) -> Result<()> {
    let lease = &held.lease;
    // runmig restores the bundle even if the driver refuses the destroy. The two do not depend on each
    // other, and the release reports every failure.
    let restored = restore(context, lease);
    match keeps.then(|| layout::keep_idle(context, held, begun)) {
        Some(Ok(true)) => return restored,
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
    error::all([ended, restored])
}

/// A lease that may go.
pub(super) struct Dead {
    pub held: Held,
    pub why: String,
}

/// Releases leases on GPUs for a collector, each for its reason. The GPUs stay and only records go, so all go in two
/// changes, however many they are. A lease that has changed is kept; one that is gone was released by another process.
pub(super) fn release_records(context: &Leases<'_>, leases: Vec<Dead>) -> Vec<Finding> {
    if leases.is_empty() {
        return Vec::new();
    }
    let outcomes = end_records(context, &leases).unwrap_or_else(|e| {
        // All of them have the same error.
        let failed = |_| Outcome::Failed(e.again());
        leases.iter().map(failed).collect()
    });
    let entries = leases.into_iter().map(|dead| Entry::Held(dead.held));
    let finding = |(entry, outcome)| Finding { entry, outcome };
    entries.zip(outcomes).map(finding).collect()
}

fn end_records(context: &Leases<'_>, leases: &[Dead]) -> Result<Vec<Outcome>> {
    let begun = Instant::now();
    let marked: Vec<Result<Held, Outcome>> = context.store.lock("gc")?.change(|state| {
        let mark = |dead: &Dead| {
            let Some(mut now) = state.held(&dead.held.lease.id) else {
                return Ok(Err(Outcome::Released(dead.why.clone())));
            };
            if now != dead.held {
                return Ok(Err(Outcome::Kept("its record changes".to_owned())));
            }
            Arc::make_mut(&mut now.lease).state = LeaseState::Releasing;
            state.put_lease(now.lease.clone())?;
            Ok(Ok(now))
        };
        leases.iter().map(mark).collect()
    })?;
    let ending: Vec<Held> = marked.iter().flatten().cloned().collect();
    let outcome = |(marked, dead): (Result<Held, Outcome>, &Dead)| match marked
        .map(|held| restore(context, &held.lease))
    {
        Ok(Ok(())) => Outcome::Released(dead.why.clone()),
        Ok(Err(e)) => Outcome::Failed(e),
        Err(other) => other,
    };
    let outcomes = marked.into_iter().zip(leases).map(outcome).collect();
    context.end(&context.store.lock("gc")?, |state, ends| {
        let gone = state.remove_all(&ending);
        let gone = leases.iter().filter(|l| gone.contains(&l.held.lease.id));
        gone.for_each(|l| ends.release(Some(&l.held.lease), &l.held.instance, begun));
        Ok(())
    })?;
    Ok(outcomes)
}

/// Releases an instance without a lease unless `against` gives a reason, which it gives under the ledger's
/// lock. An instance that is gone or has a lease by then is no error.
pub(crate) fn release_instance_unless(
    context: &Leases<'_>,
    instance: &Instance,
    patience: Patience,
    against: impl Fn(&Instance) -> Option<String>,
) -> Result<Returned> {
    let begun = Instant::now();
    let instance = {
        let ledger = context.store.lock("release")?;
        let state = context.store.state()?;
        let Some(instance) = state.instance(&instance.id).cloned() else {
            return Ok(Returned::Yes);
        };
        if state.has_others(&instance.id, None) {
            return Ok(Returned::No("a lease names it".to_owned()));
        }
        if let Some(why) = against(&instance).or_else(|| layout::keeper(context, &instance)) {
            return Ok(Returned::No(why));
        }
        if instance.attempt().is_none() && instance.state != InstanceState::Releasing {
            let mark = |i: &mut Instance| i.state = InstanceState::Releasing;
            if let Err(e) = ledger.update_instance(&instance, mark) {
                // Without the mark another container could take an idle slice, so the release stops.
                if instance.idle_since().is_some() {
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

/// Ends the MPS daemon of a lease, destroys its instance and removes the records. On a failure it quarantines the one
/// that does not end.
fn end(context: &Leases<'_>, target: Target<'_>, patience: Patience) -> Result<()> {
    if target.attempt().is_some() {
        let kind = match target.instance.attempt() {
            Some(_) => ResourceKind::of(&target.instance.resource),
            None => ResourceKind::Mps,
        };
        context.observer.retried(kind);
    }
    match destroy::destroy_instance(context, target, patience) {
        Ok(Ended::Elsewhere) => Ok(()),
        Ok(Ended::Gone(_lock)) => {
            let id = &target.instance.id;
            context.end(&context.store.lock("release")?, |state, ends| {
                target.remove_lease(state, ends);
                // A share may have come meanwhile if the mark could not be written.
                let is_of_layout = state.instance(id).is_some_and(|now| now.is_of_layout());
                let stays = is_of_layout || state.has_others(id, None);
                let removed = !stays && state.remove_instance(id);
                if removed && target.instance.attempt().is_some() {
                    ends.recovered(None, target.instance);
                }
                if removed && target.instance.idle_since().is_some() {
                    ends.release(None, target.instance, target.begun);
                }
                Ok(())
            })
        }
        Err(e) => Err(quarantine(context, target, e)),
    }
}

fn quarantine(context: &Leases<'_>, target: Target<'_>, e: Error) -> Error {
    let instance = target.instance;
    let daemon = target.lease.filter(|l| daemon::is_left(context, l));
    let (holders, kind) = match daemon {
        Some(lease) => (daemon::holders(lease), ResourceKind::Mps),
        None => (
            destroy::holders(context, instance.slice()),
            ResourceKind::of(&instance.resource),
        ),
    };
    let unseen = holders
        .unseen
        .map(|why| Error::new(format!("cannot tell whether more processes hold it: {why}")));
    let e = e.and(unseen);
    let held_by = holders.seen.into_iter().take(MAX_HOLDERS);
    let held_by = held_by.map(|(pid, name)| format!("{pid} {name}")).collect();
    if target.attempt().is_none() {
        context
            .observer
            .quarantined(kind, target.lease, instance, &e);
    }
    let noted = match daemon {
        Some(lease) => daemon::mark(context, lease, |d| {
            d.attempt = Some(next_attempt(d.attempt.as_ref(), &e, held_by));
        }),
        None => destroy::mark(context, instance, |i| {
            i.state = InstanceState::Quarantined(next_attempt(i.attempt(), &e, held_by));
        }),
    };
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

/// Returns whether gc may now retry a release that failed.
pub(super) fn is_due(attempt: Option<&Attempt>) -> bool {
    attempt.is_none_or(|a| a.next <= now())
}

/// Restores the `config.json` of each lease of an earlier boot, and removes all at once. Their instances ended with that
/// boot, so runmig asks the driver nothing and confirms nothing. `dry_run` only tells.
///
/// # Errors
/// The ledger cannot be read or written.
pub(crate) fn end_earlier_boot(context: &Leases<'_>, dry_run: bool) -> Result<Vec<Finding>> {
    let content = context.store.state()?;
    let leases = &content.earlier;
    let finding = |held: &Held, ended: Result<()>| Finding {
        entry: Entry::Held(held.clone()),
        outcome: match ended {
            Ok(()) => Outcome::Released("its boot is over".to_owned()),
            Err(e) => {
                tracing::warn!(lease = held.lease.id.as_str(), "{}", e.line());
                Outcome::Failed(e)
            }
        },
    };
    if dry_run {
        return Ok(leases.iter().map(|held| finding(held, Ok(()))).collect());
    }
    if leases.is_empty() && !context.store.is_of_earlier_boot()? {
        return Ok(Vec::new());
    }
    let ended = leases.iter().map(|held| {
        // Only a state directory on a disk still has the directories of their daemons.
        if held.lease.daemon().is_some() {
            daemon::remove_home(context, &held.lease.id);
        }
        finding(held, after_release(context, &held.lease))
    });
    let ended: Vec<Finding> = ended.collect();
    let ledger = context.store.lock("the end of an earlier boot")?;
    let ids: HashSet<&LeaseId> = leases.iter().map(|held| &held.lease.id).collect();
    let removed = context.end(&ledger, |state, ends| {
        let is_ended = |held: &mut Held| ids.contains(&held.lease.id);
        let of_boot = state.earlier.extract_if(.., is_ended);
        Ok(of_boot.inspect(|held| ends.lapsed(held)).count())
    })?;
    if removed > 0 {
        tracing::info!("{removed} leases of an earlier boot are removed");
    }
    Ok(ended)
}

/// Does what the holder needs after its lease. For a container, it puts the original `config.json` back.
fn after_release(context: &Leases<'_>, lease: &Lease) -> Result<()> {
    match &lease.holder {
        Holder::Container(container) => {
            context.store.remove_account(&lease.id);
            context.restore(&container.bundle, &lease.id)
        }
        // The driver of the claim removes the CDI file.
        Holder::Claim(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::tests::{config, open, put};

    #[test]
    fn judges_a_changed_record_anew_until_it_rests() {
        let (_dir, config) = config("");
        let leases = open(&config);
        for (changes, returned) in [
            (1, Returned::Yes),
            (
                usize::MAX,
                Returned::No("its record changes all the time".to_owned()),
            ),
        ] {
            let held = put(&leases, "web", |_| ());
            let looks = std::cell::Cell::new(0);
            let against = |lease: &Lease| {
                looks.set(looks.get() + 1);
                let ledger = leases.store.lock("test").unwrap();
                let change = |l: &mut Lease| l.request = format!("look {}", looks.get());
                let changed = (looks.get() <= changes).then(|| ledger.update_lease(lease, change));
                changed.transpose().unwrap();
                None
            };
            let end = leases
                .release_unless(&held, Patience::NONE, against)
                .unwrap();
            assert_eq!(end, returned);
            let stays = leases.store.get(&held.lease.id).unwrap().is_some();
            assert_eq!(
                (stays, looks.get()),
                (changes > 1, MAX_LOOKS.min(changes.saturating_add(1)))
            );
        }
    }
}
