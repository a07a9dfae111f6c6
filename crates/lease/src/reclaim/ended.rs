//! Releases the leases of a container that has ended, by its delete or by its creator.

use super::damaged;
use super::liveness;
use super::patience::Patience;
use super::release::{Returned, release_unless};
use crate::context::LeaseContext;
use crate::error::{self, Error, Result};
use crate::store::{Key, Lease, State};
use std::time::Duration;

/// Releases the container's leases after a delete, if the container is gone. `deleted` says that the
/// low-level runtime has deleted it.
pub(crate) fn release_if_dead(context: &LeaseContext<'_>, key: &Key, deleted: bool) -> Result<()> {
    // Another low-level runtime with the same root also reports that it has no such container.
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
            // A later create of the same id does not concern this delete.
            Returned::No(life) if deleted && liveness::is_made_by_others(lease).is_none() => {
                Err(stays(lease, &life))
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
    id: &str,
    patience: Patience,
) -> Result<Returned> {
    if let Some(lease) = context.store.get(id)? {
        lasting(|| liveness::outlives_its_front(&lease));
    }
    release_unless(context, id, patience, liveness::outlives_its_front)
}

/// Returns the error of a delete that leaves the slice with its container.
fn stays(lease: &Lease, life: &str) -> Error {
    let id = crate::error::printable(&lease.holder.key.id);
    Error::new(format!(
        "cannot give back slice {} of GPU {} with container {id}: {life}",
        lease.slice.profile, lease.slice.gpu_index
    ))
    .hint("run migctl gc as root on the host once that is over")
}

/// Returns a sign of life that lasts. A container that was just killed takes a moment to end.
pub(crate) fn lasting(sign_of_life: impl Fn() -> Option<String>) -> Option<String> {
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
