//! Looks for room, chooses and puts the choice on record, one create at a time.

use super::admit::Machine;
use super::found::{Denial, Found, Piece};
use super::look::{Ask, Look};
use super::occupied;
use super::pod::{self, Peer};
use super::record::{Failed, Part, record};
use super::requester::{Recipient, Requester, Tried};
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::inventory::{Inventory, subject_of};
use crate::leases::Leases;
use crate::placement::Admitted;
use crate::queue::{LastLook, Turn};
use crate::request::Wanted;
use crate::store::{Held, Instance};

/// The outcome of one look for room. A lease in it is on record.
pub(super) enum Outcome {
    Reserved(Vec<Part>),
    /// A lease on the slice of another container of the pod.
    Shared(Held),
    /// Another container creates the slice, one of the pod or one with a seat: this is its lease.
    PeerCreates(Held),
    /// Idle slices that have to be destroyed first.
    Evict(Vec<Instance>),
    /// A create of the same id that ended meanwhile has left a lease, which has to go first.
    Left,
    /// Not all parts could be put on record: an idle slice had gone, or there was an error.
    Interrupted(Failed),
    Denied(Denial),
    /// The driver does not answer a request that stands in the queue.
    Unanswered(Error),
}

/// Looks at the machine, chooses and puts the choice on record, under the plan's lock. The look at the
/// driver is under the lock too: two hundred creates at once that look first and queue afterwards take six
/// times as long.
pub(super) fn reserve(
    context: &Leases<'_>,
    driver: &impl Queries,
    requester: &Requester<'_>,
    tried: &mut Tried,
    turn: &mut Turn<'_>,
) -> Result<Outcome> {
    // The driver takes its time to start, and other creates can choose meanwhile.
    if let Err(e) = driver.prepare() {
        return unanswered(turn, e.into());
    }
    if let Wanted::Share(_) | Wanted::Seat(_) = requester.request.wanted {
        requester.levels(context.config);
    }
    let (holder, operation) = (requester.holder, requester.operation.id());
    let plan = context.store.lock_plan(&requester.purpose())?;
    let mut inventory = match Inventory::locked(context, driver, turn.earlier()?, &plan) {
        Ok(inventory) => inventory,
        Err(e) => return unanswered(turn, e),
    };
    tried.close_locked(&mut inventory.snapshot);
    if occupied::by_others(
        context,
        holder,
        requester.cgroup,
        operation,
        &inventory.leases,
    )? {
        return Ok(Outcome::Left);
    }
    let machine = Machine {
        config: context.config,
        driver,
        inventory: &inventory,
        subject: subject_of(holder),
    };
    let wanted = &requester.request.wanted;
    let ask = Ask::new(&machine, wanted, || requester.levels(context.config))?;
    let of_slice = ask.slices().map(Admitted::wanted);
    match pod::share(context, driver, &inventory, of_slice.as_ref(), requester)? {
        Some(Peer::Has(lease)) => {
            turn.step_aside();
            return Ok(Outcome::Shared(lease));
        }
        Some(Peer::Creates(peer)) => return Ok(Outcome::PeerCreates(peer)),
        None => {}
    }
    let over = tried.idle_over(&inventory);
    if !over.is_empty() {
        return Ok(Outcome::Evict(over));
    }
    let look = Look::new(&machine, &ask);
    let denial = match look.found(tried) {
        Ok(Found::Pieces(_, idle)) if !idle.is_empty() => return Ok(Outcome::Evict(idle)),
        Ok(Found::Pieces(pieces, _)) => return Ok(record_all(context, requester, turn, pieces)),
        Ok(Found::PeerCreates(_, peer)) => return Ok(Outcome::PeerCreates(peer.clone())),
        Err(denial) => denial,
    };
    if let Denial::Room(no) = &denial
        && no.may_pass()
    {
        let could_use = look.could_use(no);
        drop(look);
        let last = LastLook::new(inventory.snapshot, ask.wants(no), no.has_foreign());
        turn.join(&plan, could_use, last)?;
    }
    Ok(Outcome::Denied(denial))
}

/// A request that waited for its turn goes on to wait. Another one fails.
fn unanswered(turn: &Turn<'_>, e: Error) -> Result<Outcome> {
    match turn.is_in_queue() && e.is_of_driver() {
        true => Ok(Outcome::Unanswered(e)),
        false => Err(e),
    }
}

/// Puts every piece on record.
fn record_all(
    context: &Leases<'_>,
    requester: &Requester<'_>,
    turn: &mut Turn<'_>,
    pieces: Vec<Piece<'_>>,
) -> Outcome {
    let mut parts = Vec::new();
    for piece in pieces {
        match record(context, requester, piece) {
            Ok(Some(part)) => parts.push(part),
            stopped => {
                let undo = parts.into_iter().map(Part::undo).collect();
                let error = stopped.err();
                return Outcome::Interrupted(Failed { undo, error });
            }
        }
    }
    // Several may come to nothing and be rolled back: until all are there, others wait behind them.
    if parts.len() == 1 {
        turn.step_aside();
    }
    Outcome::Reserved(parts)
}
