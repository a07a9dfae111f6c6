//! Releases the leases of a container that has ended, by its delete or by its creator.

use super::damaged;
use super::patience::Patience;
use super::release::{Returned, release_unless};
use super::{holder, liveness};
use crate::context::LeaseContext;
use crate::error::{self, Error, Result};
use crate::store::{Held, Key, Lease, LeaseState};
use std::time::Instant;

/// Releases the container's leases after a delete, if the container is gone. `deleted` says that the
/// low-level runtime has deleted it.
pub(crate) fn release_if_dead(context: &LeaseContext<'_>, key: &Key, deleted: bool) -> Result<()> {
    // Another low-level runtime with the same root also reports that it has no such container.
    let damaged = match deleted && !liveness::lives_on_record(key) {
        true => damaged::release_damaged_with(context, key),
        false => Ok(()),
    };
    let leases = context.leases_of(key)?;
    // One container has one end, however many leases it has.
    let end = Instant::now() + liveness::AFTER_DELETE;
    let patience = |lease: &Lease| {
        let passes = deleted
            && liveness::unseen(lease).is_none()
            && liveness::is_made_by_others(&context.store, lease).is_none();
        match passes {
            true => end.saturating_duration_since(Instant::now()),
            false => liveness::A_MOMENT,
        }
    };
    let against = |now: &Lease| match now.state {
        LeaseState::Releasing => None,
        LeaseState::Pending | LeaseState::Ready => holder::sign_of_life(&context.store, now),
    };
    let released = leases.iter().map(|held| {
        let lease = &held.lease;
        let life = match lease.state {
            LeaseState::Releasing => None,
            LeaseState::Pending | LeaseState::Ready => liveness::lasting(patience(lease), || {
                holder::sign_of_life(&context.store, lease)
            }),
        };
        let returned = match life {
            Some(life) => Returned::No(life),
            None => release_unless(context, held, Patience::with(&held.instance), against)?,
        };
        match returned {
            // A later create of the same id does not concern this delete.
            Returned::No(life)
                if deleted && liveness::is_made_by_others(&context.store, lease).is_none() =>
            {
                Err(stays(held, &life))
            }
            _ => Ok(()),
        }
    });
    error::all(std::iter::once(damaged).chain(released))
}

/// Releases the container's leases for its creator, whose low-level runtime failed, was killed or is done.
/// It releases nothing if the container lives on without them.
pub(crate) fn release_if_over(
    context: &LeaseContext<'_>,
    held: &Held,
    patience: Patience,
) -> Result<Returned> {
    if let Some(lease) = context.store.lease_now(&held.lease)? {
        liveness::lasting(liveness::A_MOMENT, || liveness::outlives_its_front(&lease));
    }
    release_unless(context, held, patience, liveness::outlives_its_front)
}

/// Returns the error of a delete that leaves the slice with its container.
fn stays(held: &Held, life: &str) -> Error {
    let id = crate::error::printable(held.lease.holder.name());
    let resource = &held.instance.resource;
    Error::new(format!(
        "cannot release {resource} with container {id}: {life}"
    ))
    .hint("run migctl gc as root on the host once that is over")
}
