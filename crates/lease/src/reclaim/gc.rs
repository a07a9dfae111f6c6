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

/// Collects every due lease, with patience, for an operator or a timer.
pub(crate) fn gc(context: &LeaseContext<'_>, dry_run: bool) -> Result<Collection> {
    look_through(context, dry_run, true, Patience::default())
}

/// Collects leases inside a create: one try each, and no lease that failed a moment ago.
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
    // Leases of an earlier boot go first and together. Even a large number of them does not delay the rest.
    let is_earlier = |l: &Lease| l.boot_id != context.boot_id;
    let (earlier, leases): (Vec<_>, Vec<_>) = leases.into_iter().partition(is_earlier);
    let mut findings = earlier_boot::strike_off(context, earlier, dry_run);
    // All leases share one deadline. A machine full of slices in use takes no longer than one slice.
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

/// Returns an error that counts the leases that stay because runmig cannot see their containers. The error
/// of a create without room shows it.
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

/// Returns the reason for which a lease may go, or else the reason for which it stays.
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

/// Destroys an idle slice, unless another create took it. A slice that cannot be destroyed stays on record
/// like any other.
pub(crate) fn discard_idle(context: &LeaseContext<'_>, idle: &Lease) {
    let handed_out = |now: &Lease| now.idle_since.is_none().then(String::new);
    if let Err(e) =
        release::release_unless(context, &idle.id, Patience::with_idle(idle), handed_out)
    {
        tracing::warn!(lease = idle.id, "{}", e.line());
    }
}
