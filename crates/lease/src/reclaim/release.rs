//! Releases a lease: destroys its instance, has the driver confirm that it is gone, and only then strikes
//! the lease off.

use super::patience::Patience;
use super::{destroy, keep};
use crate::context::{LeaseContext, now};
use crate::error::{Error, Result};
use crate::store::{Attempt, Lease, State};
use std::time::{Duration, SystemTime};

/// Between tries to give back what cannot be destroyed: 2 s, doubled each time, up to this.
const MAX_GAP: Duration = Duration::from_secs(300);

/// How many of a slice's holders are written down: for people, in a record of a bounded size.
const MAX_HOLDERS: usize = 32;

/// How often a record may change while it is judged: more often than anything that lives changes it.
const MAX_LOOKS: usize = 16;

/// The outcome of a release.
#[derive(Debug, PartialEq, Eq)]
pub enum Returned {
    /// It is gone, now or before.
    Yes,
    /// Nothing was done, and why.
    No(String),
}

/// Ends a lease, whatever state it is in. One that is gone already is fine.
pub(crate) fn release(context: &LeaseContext<'_>, id: &str, patience: Patience) -> Result<()> {
    release_unless(context, id, patience, |_| None).map(drop)
}

/// Ends a lease unless something speaks against it. That is asked without a lock, since nobody is to
/// wait for who looks at processes; so it counts only if the record is the same under the ledger's
/// lock. One that was read while the creator lived may not name the low-level runtime yet that
/// goes on without it. Once it is marked, nobody writes such a thing.
pub(crate) fn release_unless(
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
    // A mark that cannot be written (a full disk) keeps no slice back: its container is as gone
    // without it, and the next one starts from the beginning.
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
    let restore = || context.restore(&lease.holder.bundle, &lease.id).err();
    // A read may fail once: without its record, only the next create puts the original back.
    let restored = restore().and_then(|_| restore());
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
        let noted = destroy::mark(context, &lease.id, |l| {
            l.attempt = Some(next_attempt(l.attempt.as_ref(), &e, held_by));
        });
        tracing::warn!(lease = lease.id, "{}", e.line());
        return Err(e.and(noted.err()));
    }
    context.store.lock("release")?.remove(lease)?;
    tracing::info!(
        lease = lease.id,
        container = lease.holder.key.id,
        "{} is given back",
        lease.slice
    );
    restored.map_or(Ok(()), Err)
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
