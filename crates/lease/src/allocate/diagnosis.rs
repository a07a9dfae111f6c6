//! The diagnosis for the error of a create that found no room.

use super::admit::subject_of;
use super::denial::Denial;
use super::requester::Requester;
use super::what_if::{WhatIf, no_room};
use crate::context::LeaseContext;
use crate::error::Result;
use crate::inventory::Inventory;
use crate::placement::{MAX_STEPS, Rejection};
use crate::queue::Turn;
use crate::refusal::NoRoom;
use crate::request::{Slices, Wanted};

/// Adds to the answer the slices that would have to lie elsewhere. The search has a new look at the
/// machine, without a lock, since it decides nothing. If it fails, or finds room after all, the
/// answer stays as it was.
pub(super) fn explained(
    context: &LeaseContext<'_>,
    requester: &Requester<'_>,
    turn: &Turn,
    no: NoRoom,
) -> NoRoom {
    match &requester.request.wanted {
        Wanted::Slices(slices) => search(context, requester, slices, turn)
            .ok()
            .flatten()
            .map_or(no, NoRoom::Slices),
        // No move of another lease makes room for a share or a whole GPU, and none is planned for a seat.
        Wanted::Share(_) | Wanted::Seat(_) | Wanted::Gpus(_) => no,
    }
}

fn search(
    context: &LeaseContext<'_>,
    requester: &Requester<'_>,
    slices: &Slices,
    turn: &Turn,
) -> Result<Option<Rejection>> {
    let driver = context.driver();
    let inventory = Inventory::read(context, &driver, turn.earlier(&context.store)?)?;
    let subject = subject_of(requester.holder);
    let what_if = WhatIf::new((context.config, &driver), &inventory, slices, subject)?;
    let outcomes = what_if.alternatives().iter();
    // Other creates may wait for this process to end.
    let outcomes = outcomes.map(|asked| what_if.outcome(asked, MAX_STEPS / 10));
    match no_room(outcomes.collect()) {
        Some(Denial::Limit(over)) => Err(over),
        Some(Denial::Room(no)) => Ok(Some(no)),
        None => Ok(None),
    }
}
