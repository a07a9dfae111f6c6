//! Releases the leases of a container that has ended, by its delete or by its creator.

use super::damaged;
use super::liveness;
use super::patience::Patience;
use super::release::{Returned, release_unless};
use crate::context::LeaseContext;
use crate::error::{self, Error, Result};
use crate::store::{Key, Lease, State};
use std::time::Duration;

/// After a delete: gives back what the container has, if it is gone. `deleted` says that the
/// low-level runtime has it no more.
pub(crate) fn release_if_dead(context: &LeaseContext<'_>, key: &Key, deleted: bool) -> Result<()> {
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
