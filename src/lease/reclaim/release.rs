//! Releases a lease: destroys its instance, has the driver confirm that it is gone, and only then strikes
//! the lease off.

use super::patience::Patience;
use super::{bundles, damaged, destroy, keep, liveness};
use crate::error::{self, Error, Result};
use crate::lease::context::{LeaseContext, now};
use crate::store::{Attempt, Key, Lease, State};
use std::time::{Duration, SystemTime};

/// Between tries to give back what cannot be destroyed: 2 s, doubled each time, up to this.
const MAX_GAP: Duration = Duration::from_secs(300);

/// How many of a slice's holders are written down: for people, in a record of a bounded size.
const MAX_HOLDERS: usize = 32;

/// How often a record may change while it is judged: more often than anything that lives changes it.
const MAX_LOOKS: usize = 16;

/// What became of a lease that was to be given back.
#[derive(Debug, PartialEq, Eq)]
pub enum Returned {
    /// It is gone, now or before.
    Yes,
    /// Nothing was done, and why.
    No(String),
}

/// Ends a lease, whatever state it is in. One that is gone already is fine.
pub fn release(context: &LeaseContext<'_>, id: &str, patience: Patience) -> Result<()> {
    release_unless(context, id, patience, |_| None).map(drop)
}

/// Ends a lease unless something speaks against it. That is asked without a lock, since nobody is to
/// wait for who looks at processes; so it counts only if the record is the same under the ledger's
/// lock. One that was read while the creator lived may not name the low-level runtime yet that
/// goes on without it. Once it is marked, nobody writes such a thing.
pub fn release_unless(
    context: &LeaseContext<'_>,
    id: &str,
    patience: Patience,
    against: impl Fn(&Lease) -> Option<String>,
) -> Result<Returned> {
    let Some(mut lease) = context.store.get(id)? else {
        return Ok(Returned::Yes);
    };
    let mut looks = 0;
    let ledger = loop {
        if let Some(why) = against(&lease) {
            return Ok(Returned::No(why));
        }
        let ledger = context.store.lock("release")?;
        let Some(now) = context.store.get(id)? else {
            return Ok(Returned::Yes);
        };
        if now == lease {
            break ledger;
        }
        looks += 1;
        if looks == MAX_LOOKS {
            return Ok(Returned::No("its record changes all the time".to_owned()));
        }
        lease = now;
    };
    // Only what is given back for the first time is kept: who ends an idle one wants its room, and
    // what could not be destroyed is not fit for anybody.
    let keeps = lease.state != State::Releasing;
    lease.state = State::Releasing;
    let was_idle = lease.idle_since.take().is_some();
    // What cannot be written (a full disk) keeps no slice back: its container is as gone without
    // the mark, and the next one starts from the beginning.
    if let Err(e) = ledger.put(&lease) {
        // But what another container could take or share as long as it is not marked.
        if was_idle || lease.shared_in.is_some() {
            return Err(e);
        }
        tracing::warn!(lease = id, "{}", e.line());
    }
    drop(ledger);
    finish(context, &lease, patience, keeps).map(|()| Returned::Yes)
}

fn finish(
    context: &LeaseContext<'_>,
    lease: &Lease,
    patience: Patience,
    keeps: bool,
) -> Result<()> {
    // The bundle is put right whether or not the driver lets go: they do not depend on each
    // other, and every failure is told.
    let restored = bundles::restore(context, &lease.holder.bundle, &lease.id).err();
    match keeps.then(|| keep::keep_idle(context, lease)) {
        Some(Ok(true)) => return restored.map_or(Ok(()), Err),
        Some(Err(e)) => tracing::warn!(lease = lease.id, "not kept idle: {}", e.line()),
        Some(Ok(false)) | None => {}
    }
    if let Err(e) = destroy::destroy_instance_of(context, lease, patience) {
        let holders = destroy::holders(context, lease);
        let unseen = holders
            .unseen
            .map(|why| Error::new(format!("cannot tell whether more processes hold it: {why}")));
        let e = e.and(unseen).and(restored);
        let held_by = holders.seen.into_iter().take(MAX_HOLDERS);
        let held_by = held_by.map(|(pid, name)| format!("{pid} {name}")).collect();
        let noted = mark(context, &lease.id, |l| {
            l.attempt = Some(next_attempt(l.attempt.as_ref(), &e, held_by));
        });
        tracing::warn!(lease = lease.id, "{}", e.line());
        return Err(e.and(noted.err()));
    }
    context.store.lock("release")?.remove(lease)?;
    tracing::info!(
        lease = lease.id,
        container = lease.holder.key.id,
        "{} at {} on GPU {} is given back",
        lease.slice.profile,
        lease.slice.placement,
        lease.slice.gpu_index
    );
    restored.map_or(Ok(()), Err)
}

/// Writes down how far a release has come. What cannot be written (a full disk) keeps no slice
/// back: its container is as gone without the mark, and the next one starts from the beginning.
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

/// After a delete: gives back what the container has, if it is gone. `deleted` says that the
/// low-level runtime has it no more.
pub fn release_if_dead(context: &LeaseContext<'_>, key: &Key, deleted: bool) -> Result<()> {
    // Another low-level runtime with the same root says that it has no such container.
    let damaged = match deleted && !liveness::lives_on_record(key) {
        true => damaged::release_damaged_with(context, key),
        false => Ok(()),
    };
    let leases = context.leases_of(key)?;
    let against = |now: &Lease| match now.state {
        State::Releasing => None,
        _ => liveness::sign_of_life(now),
    };
    let released = leases.iter().map(|lease| {
        let life = match lease.state {
            State::Releasing => None,
            _ => lasting(|| liveness::sign_of_life(lease)),
        };
        let returned = match life {
            Some(life) => Returned::No(life),
            None => release_unless(context, &lease.id, Patience::with(lease), against)?,
        };
        match returned {
            // A create of the same id that came meanwhile is none of this delete's business.
            Returned::No(life) if deleted && liveness::is_made_by_others(lease).is_none() => {
                Err(stays(lease, &life))
            }
            _ => Ok(()),
        }
    });
    error::all(std::iter::once(damaged).chain(released))
}

/// By its creator, whose low-level runtime failed, was killed or is done: gives back what it has,
/// unless it lives on without them.
pub fn release_if_over(
    context: &LeaseContext<'_>,
    id: &str,
    patience: Patience,
) -> Result<Returned> {
    if let Some(lease) = context.store.get(id)? {
        lasting(|| liveness::outlives_its_front(&lease));
    }
    release_unless(context, id, patience, liveness::outlives_its_front)
}

/// The error of a delete that leaves the slice with its container.
fn stays(lease: &Lease, life: &str) -> Error {
    let id = crate::error::printable(&lease.holder.key.id);
    Error::new(format!(
        "cannot give back slice {} of GPU {} with container {id}: {life}",
        lease.slice.profile, lease.slice.gpu_index
    ))
    .hint("run migctl gc as root on the host once that is over")
}

/// A sign of life that stays: a container that was just killed takes a moment to be gone.
pub fn lasting(sign_of_life: impl Fn() -> Option<String>) -> Option<String> {
    let mut gap = Duration::from_millis(1);
    loop {
        let sign = sign_of_life()?;
        if gap >= Duration::from_millis(200) {
            return Some(sign);
        }
        std::thread::sleep(gap);
        gap *= 2;
    }
}

fn next_attempt(last: Option<&Attempt>, e: &Error, held_by: Vec<String>) -> Attempt {
    let count = last.map_or(0, |a| a.count) + 1;
    let gap = Duration::from_secs(1u64 << count.min(20)).min(MAX_GAP);
    Attempt {
        count,
        error: e.line(),
        held_by,
        next: humantime::format_rfc3339_seconds(SystemTime::now() + gap).to_string(),
    }
}

/// Whether a lease that could not be released is to be tried again by itself now.
pub(super) fn is_due(lease: &Lease) -> bool {
    lease.attempt.as_ref().is_none_or(|a| a.next <= now())
}
