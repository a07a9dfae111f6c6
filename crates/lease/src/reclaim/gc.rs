//! Collects the leases that no process released.

use super::finding::{Collection, Finding, Outcome};
use super::patience::Patience;
use super::release::{self, Returned, is_due};
use super::{damaged, earlier_boot, liveness, ready};
use crate::context::LeaseContext;
use crate::error::{Error, Result};
use crate::idle;
use crate::store::{Lease, State};
use std::time::Instant;

/// By hand or from a timer: everything that is due, with patience.
pub(crate) fn gc(context: &LeaseContext<'_>, dry_run: bool) -> Result<Collection> {
    look_through(context, dry_run, true, Patience::default())
}

/// At need, inside a create: one try each, and nothing that failed a moment ago.
pub(crate) fn collect(context: &LeaseContext<'_>, dry_run: bool) -> Result<Collection> {
    look_through(context, dry_run, false, Patience::NONE)
}

fn look_through(
    context: &LeaseContext<'_>,
    dry_run: bool,
    all: bool,
    patience: Patience,
) -> Result<Collection> {
    let (leases, damaged) = context.store.list()?;
    // First, and all at once: whatever their number, the others are looked through no slower.
    let is_earlier = |l: &Lease| l.boot_id != context.boot_id;
    let (earlier, leases): (Vec<_>, Vec<_>) = leases.into_iter().partition(is_earlier);
    let mut findings = earlier_boot::strike_off(context, earlier, dry_run);
    // Shared by all: a machine full of slices in use is looked through no slower than one.
    let end = Instant::now() + patience.0;
    for lease in leases {
        let outcome = match why_collect(context, &lease, all) {
            Err(kept) => {
                if !dry_run && let Err(e) = ready::ready_without_its_front(context, &lease) {
                    tracing::warn!(lease = lease.id, "{}", e.line());
                }
                Outcome::Kept(kept)
            }
            Ok(why) if dry_run => Outcome::Released(why),
            Ok(why) => match release::release_unless(context, &lease.id, left(&lease, end), |now| {
                why_collect(context, now, all).err()
            }) {
                Ok(Returned::Yes) => Outcome::Released(why),
                Ok(Returned::No(kept)) => Outcome::Kept(kept),
                Err(e) => Outcome::Failed(e),
            },
        };
        findings.push(Finding { lease, outcome });
    }
    Ok(Collection {
        leases: findings,
        damaged: damaged::look_through(context, damaged, dry_run, || remaining(end)),
    })
}

/// The leases that nobody collects because their containers cannot be seen, for an error about
/// room.
pub(crate) fn unseen(context: &LeaseContext<'_>) -> Option<Error> {
    let (leases, _) = context.store.list().ok()?;
    let of_this_boot = leases.iter().filter(|l| l.boot_id == context.boot_id);
    let mut unseen = of_this_boot.filter_map(liveness::unseen);
    let why = unseen.next()?;
    let what = format!(
        "leases are kept ({}) because runmig cannot see from here whether their containers live: {why}",
        1 + unseen.count()
    );
    Some(Error::new(what).hint(liveness::UNSEEN_HINT))
}

/// Why a lease may go; else why it stays.
fn why_collect(
    context: &LeaseContext<'_>,
    lease: &Lease,
    all: bool,
) -> std::result::Result<String, String> {
    if lease.idle_since.is_some() {
        return idle::is_over(context.config, lease);
    }
    if lease.state == State::Releasing {
        return if all || is_due(lease) {
            Ok("it was being given back".to_owned())
        } else {
            Err("it is tried again later".to_owned())
        };
    }
    match liveness::sign_of_life(lease) {
        Some(life) => Err(life),
        None if lease.state == State::Creating => {
            Ok("its creator died before the container was there".to_owned())
        }
        None => Ok("its container is gone".to_owned()),
    }
}

fn left(lease: &Lease, end: Instant) -> Patience {
    Patience(remaining(end).0.min(Patience::with(lease).0))
}

fn remaining(end: Instant) -> Patience {
    Patience(end.saturating_duration_since(Instant::now()))
}

/// Destroys an idle slice, unless it was handed out meanwhile. One that cannot be destroyed stays on
/// record like any other.
pub(crate) fn discard_idle(context: &LeaseContext<'_>, idle: &Lease) {
    let handed_out = |now: &Lease| now.idle_since.is_none().then(String::new);
    if let Err(e) =
        release::release_unless(context, &idle.id, Patience::with_idle(idle), handed_out)
    {
        tracing::warn!(lease = idle.id, "{}", e.line());
    }
}
