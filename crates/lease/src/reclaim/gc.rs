//! Collects the leases that no process released.

use super::claim::{self, release_dead};
use super::finding::{Finding, Outcome, Patience};
use super::release::{self, Dead, Returned, is_due};
use super::{daemon, layout, limits, liveness, lost_leases, ready, revive};
use crate::counters::Actor;
use crate::error::{self, Error, Result};
use crate::leases::Leases;
use crate::model::LeaseId;
use crate::store::{self, Attempt, Entry, Held, Instance, Lease, LeaseState};
use crate::{idle, mps};
use std::time::Instant;

impl Leases<'_> {
    /// Collects every due lease, with patience, for an operator or a timer.
    /// Returns what it found of each lease, and of each instance without one.
    pub fn gc(&self, dry_run: bool) -> Result<Vec<Finding>> {
        let look = || look_through(self, dry_run, true, Patience::default());
        let found = self.observer.acting(Actor::Gc, look)?;
        if !dry_run {
            self.observer.collected();
        }
        Ok(found)
    }
}

/// Collects leases inside a create: one try each, and no lease that failed a moment ago.
pub(crate) fn collect(context: &Leases<'_>) -> Result<Vec<Finding>> {
    let look = || look_through(context, false, false, Patience::NONE);
    context.observer.acting(Actor::Gc, look)
}

fn look_through(
    context: &Leases<'_>,
    dry_run: bool,
    all: bool,
    patience: Patience,
) -> Result<Vec<Finding>> {
    if !dry_run {
        match context.store.sweep_queue() {
            Ok(killed) => killed
                .iter()
                .for_each(|w| context.observer.wait_killed(&w.waiter)),
            Err(e) => tracing::warn!("{}", e.line()),
        }
        context.store.sweep_operations();
    }
    let mut findings = release::end_earlier_boot(context, dry_run)?;
    let entries = context.store.list()?.entries;
    // All leases share one deadline. A machine full of slices in use takes no longer than one slice.
    let end = Instant::now() + patience.0;
    // The first question opens the session.
    let driver = context.driver();
    let (of_gpus, entries) = match dry_run {
        true => (Vec::new(), entries),
        false => dead_on_gpus(context, entries, all),
    };
    findings.extend(release::release_records(context, of_gpus));
    let look = Look { dry_run, all, end };
    for entry in entries {
        let outcome = match &entry {
            Entry::Held(held) => look_at_lease(context, held, &look),
            Entry::Unleased(instance) if instance.is_of_layout() && all => {
                layout::look_at(context, &driver, instance, dry_run)
            }
            Entry::Unleased(instance) => look_at_instance(context, instance, &look),
        };
        findings.push(Finding { entry, outcome });
    }
    // A create does not wait for the daemons of others.
    if all {
        revive::restart_ended(context, &mut findings, dry_run);
        limits::set_back_raised(context, &mut findings, dry_run);
        revive::look_for(context, &mut findings, dry_run);
    }
    if all && !dry_run {
        lost_leases::sweep_accounts(context)?;
        remove_lost_homes(context)?;
    }
    Ok(findings)
}

/// Ends the MPS daemons that no record names. A create writes the record first, so none of these is being made.
fn remove_lost_homes(context: &Leases<'_>) -> Result<()> {
    mps::remove_left_over();
    let homes = mps::homes(&context.config.state_dir);
    if homes.is_empty() {
        return Ok(());
    }
    let store = &context.store;
    // An account that stays is of a container that may live.
    let accounts = store.accounts();
    let has_account = |id: &LeaseId| accounts.iter().any(|(its, _)| its == id);
    let is_lost = |id: &LeaseId| Ok::<_, Error>(store.get(id)?.is_none() && !has_account(id));
    for id in homes {
        // The lock makes the answer final. Most daemons are on record, and need none.
        let is_over = is_lost(&id)? && {
            let _ledger = store.lock("gc")?;
            is_lost(&id)? && mps::homes(&context.config.state_dir).contains(&id)
        };
        if is_over {
            tracing::warn!("no record names MPS daemon {id}: it is ended");
            daemon::remove_home(context, &id);
        }
    }
    Ok(())
}

/// Parts the leases on GPUs that may go, each with its reason, from all others. A lease with a daemon is among the others.
fn dead_on_gpus(context: &Leases<'_>, entries: Vec<Entry>, all: bool) -> (Vec<Dead>, Vec<Entry>) {
    let (mut dead, mut others) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Entry::Held(held)
                if held.instance.slice().is_none() && held.lease.daemon().is_none() =>
            {
                match why_collect(context, &held, &held.lease, all) {
                    Ok(why) => dead.push(Dead { held, why }),
                    Err(_) => others.push(Entry::Held(held)),
                }
            }
            entry => others.push(entry),
        }
    }
    (dead, others)
}

/// What a collection may do.
struct Look {
    dry_run: bool,
    /// Also what only an operator's collection does.
    all: bool,
    /// The time after which it begins no other try.
    end: Instant,
}

fn look_at_lease(context: &Leases<'_>, held: &Held, &Look { dry_run, all, end }: &Look) -> Outcome {
    let lease = &held.lease;
    let why = why_collect(context, held, lease, all);
    if !dry_run && why.is_err() {
        if let Err(e) = ready::ready_without_its_front(context, lease) {
            tracing::warn!(lease = lease.id.as_str(), "{}", e.line());
        }
        if let Err(e) = claim::undo_killed_prepare(context, held) {
            return Outcome::Failed(e);
        }
    }
    let against = |now: &Lease| why_collect(context, held, now, all).err();
    outcome(why, dry_run, || {
        context.release_unless(held, left(held.attempt(), end), against)
    })
}

fn look_at_instance(
    context: &Leases<'_>,
    instance: &Instance,
    &Look { dry_run, all, end }: &Look,
) -> Outcome {
    let against = |now: &Instance| why_destroy(context, now, all).err();
    outcome(why_destroy(context, instance, all), dry_run, || {
        let patience = left(instance.attempt(), end);
        release::release_instance_unless(context, instance, patience, against)
    })
}

/// Tries once to release an instance without a lease that is on its way out, for a claim that wants its place.
pub(crate) fn release_going(context: &Leases<'_>, instance: &Instance) -> Result<Returned> {
    let against = |now: &Instance| why_destroy(context, now, true).err();
    release::release_instance_unless(context, instance, Patience::NONE, against)
}

/// Releases what may go, except in a dry run.
fn outcome(
    why: Result<String, String>,
    dry_run: bool,
    release: impl FnOnce() -> Result<Returned>,
) -> Outcome {
    match why {
        Ok(why) if dry_run => Outcome::Released(why),
        Ok(why) => match release() {
            Ok(Returned::Yes) => Outcome::Released(why),
            Ok(Returned::No(kept)) => Outcome::Kept(kept),
            Err(e) => Outcome::Failed(e),
        },
        Err(kept) => Outcome::Kept(kept),
    }
}

/// Returns an error that counts the leases that stay because runmig cannot see their containers. The error
/// of a create without room shows it.
pub(crate) fn unseen(context: &Leases<'_>) -> Option<Error> {
    let listing = context.store.list().ok()?;
    let leases = listing.held().map(|h| &*h.lease);
    let mut unseen = leases.filter_map(liveness::unseen);
    let why = unseen.next()?;
    let what = format!(
        "leases are kept ({}) because runmig cannot see from here whether their containers live: {why}",
        1 + unseen.count()
    );
    Some(Error::new(what).hint(liveness::UNSEEN_HINT))
}

/// Returns why a lease may go, or else why it stays.
fn why_collect(
    context: &Leases<'_>,
    held: &Held,
    lease: &Lease,
    all: bool,
) -> Result<String, String> {
    if lease.state == LeaseState::Releasing {
        return retry(held.attempt(), all);
    }
    liveness::withdrawal(context, lease)
}

/// Returns why an instance without a lease may go, or else why it stays.
fn why_destroy(context: &Leases<'_>, instance: &Instance, all: bool) -> Result<String, String> {
    if instance.idle_since().is_some() {
        return idle::is_over(context.config, instance);
    }
    match (layout::keeper(context, instance), &instance.layout) {
        (Some(kept), _) => Err(kept),
        (None, Some(name)) if instance.attempt().is_none() => {
            Ok(format!("the apply of layout {name} did not complete"))
        }
        (None, None) if !instance.is_ending() => Ok("no lease names it".to_owned()),
        _ => retry(instance.attempt(), all),
    }
}

fn retry(attempt: Option<&Attempt>, all: bool) -> Result<String, String> {
    match all || is_due(attempt) {
        true => Ok("it was being released".to_owned()),
        false => Err("it is tried again later".to_owned()),
    }
}

fn left(attempt: Option<&Attempt>, end: Instant) -> Patience {
    let remaining = end.saturating_duration_since(Instant::now());
    Patience(remaining.min(Patience::with(attempt).0))
}

/// Destroys an idle slice, unless another create took it. A slice that cannot be destroyed stays on record
/// like any other.
pub(crate) fn discard_idle(context: &Leases<'_>, idle: &Instance) {
    let handed_out = |now: &Instance| now.idle_since().is_none().then(String::new);
    let patience = Patience::with_idle(idle);
    let release = || release::release_instance_unless(context, idle, patience, handed_out);
    if let Err(e) = context.observer.acting(Actor::Eviction, release) {
        tracing::warn!(instance = idle.id.as_str(), "{}", e.line());
    }
}

impl Leases<'_> {
    /// Ends what containers of claims left: their leases, and the instances whose last lease was a container's. It also
    /// ends instances without a lease that are on their way out. Leases without a claim are none of its business.
    ///
    /// # Errors
    /// An instance that is in use. It is quarantined, and the next call tries again.
    pub fn release_ended(&self) -> Result<()> {
        let listing = self.store.list()?;
        let release = |entry: &Entry| match entry {
            Entry::Held(held) => match &held.lease.shared_in {
                Some(mark) if store::is_mark(mark) && is_due(held.attempt()) => {
                    release_dead(self, held).map(drop)
                }
                _ => Ok(()),
            },
            // An idle one stays for the next request. Any other is on its way out, or a kill left it without its lease.
            Entry::Unleased(instance) => {
                let is_going = instance.idle_since().is_none() && !instance.is_of_layout();
                match is_going && is_due(instance.attempt()) {
                    true => release_going(self, instance).map(drop),
                    false => Ok(()),
                }
            }
        };
        error::all(listing.entries.iter().map(release))
    }
}
