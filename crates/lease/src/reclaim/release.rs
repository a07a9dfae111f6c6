//! Releases a lease. It destroys the instance, has the driver confirm the end, and only then removes the
//! lease.

use super::patience::Patience;
use super::{destroy, keep};
use crate::context::{LeaseContext, now};
use crate::error::{Error, Result};
use crate::store::{Attempt, Lease, State};
use std::time::{Duration, SystemTime};

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
pub(crate) fn release(context: &LeaseContext<'_>, id: &str, patience: Patience) -> Result<()> {
    release_unless(context, id, patience, |_| None).map(drop)
}

/// Releases a lease unless `against` gives a reason. `against` runs without a lock, because no process may
/// wait while it looks at processes. So its answer counts only if the record is unchanged under the
/// ledger's lock. A record read during the creator's life may not name the low-level runtime that outlives
/// it. After the mark no process adds such a fact.
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
    // runmig keeps only a slice that is released for the first time. A release of an idle slice needs its
    // room, and a slice that could not be destroyed is unfit.
    let keeps = lease.state != State::Releasing;
    lease.state = State::Releasing;
    let was_idle = lease.idle_since.take().is_some();
    // A mark that cannot be written (a full disk) does not stop the release. The container is gone in any
    // case, and the next release starts from the beginning.
    if let Err(e) = ledger.put(&lease) {
        // Without the mark another container could take or share this slice, so the release stops.
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
    // runmig restores the bundle even if the driver refuses the destroy. The two do not depend on each
    // other, and the release reports every failure.
    let restore = || context.restore(&lease.holder.bundle, &lease.id).err();
    // A read may fail once. Without the lease, only the next create restores the original.
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

/// Returns whether gc may now retry a lease whose release failed.
pub(super) fn is_due(lease: &Lease) -> bool {
    lease.attempt.as_ref().is_none_or(|a| a.next <= now())
}
