//! Puts the choice of a create on record, and takes it back.

use super::found::{Piece, Placed, Step};
use super::requester::Recipient;
use crate::counters::Outcome;
use crate::draft;
use crate::error::{self, Error, Result};
use crate::leases::Leases;
use crate::reclaim::{self, Patience};
use crate::store::{Held, Instance, InstanceState, LeaseState, Origin, Portion, Resource};
use std::sync::Arc;

/// Returns how a create with these ends: a slice that was made counts more than one that was there.
pub(super) fn end(parts: &[Part]) -> Outcome {
    let is_made = |part: &Part| matches!(part, Part::Place(_) | Part::Joined(_));
    let is_adopted =
        |part: &Part| matches!(part, Part::Existing(held) if held.instance.outlives_leases());
    if parts.iter().any(is_made) {
        Outcome::Created
    } else if parts.iter().any(is_adopted) {
        Outcome::Adopted
    } else {
        Outcome::Reused
    }
}

/// A lease on record whose slice or GPU is not ready: to be provisioned, or rolled back.
#[must_use]
pub(crate) enum Part {
    /// A free place, where the slice is to be created.
    Place(Held),
    /// A GPU or a slice that other leases share.
    Joined(Held),
    /// An existing slice, to be validated.
    Existing(Held),
}

/// A lease of a create that comes to nothing.
pub(super) enum Undo {
    /// The driver created nothing: an instance at that place is foreign.
    Forget(Held),
    /// The driver was not asked, since another process keeps the GPU locked.
    NotBegun(Held),
    Release(Held),
    /// The slice existed, and the container never had it.
    GiveUp(Held),
}

impl Part {
    /// Returns how a part is undone that was not provisioned.
    pub(super) fn undo(self) -> Undo {
        match self {
            Part::Place(lease) => Undo::Forget(lease),
            Part::Joined(lease) | Part::Existing(lease) => Undo::Release(lease),
        }
    }
}

/// Undoes all of these, whichever fail.
pub(crate) fn roll_back(context: &Leases<'_>, leases: Vec<Undo>) -> Result<()> {
    error::all(leases.into_iter().map(|undo| match undo {
        Undo::Forget(lease) | Undo::NotBegun(lease) => {
            let ledger = context.store.lock("refused create")?;
            let removed = ledger.change(|state| Ok(state.remove_all(&[lease])));
            removed.map(drop)
        }
        Undo::Release(lease) => reclaim::release(context, &lease, Patience::default()),
        Undo::GiveUp(lease) => {
            // An instance in use stays on record, and the next create or gc tries again.
            if let Err(e) = give_up(context, &lease) {
                tracing::warn!("{}", e.line());
            }
            Ok(())
        }
    }))
}

/// Parts that could not all be put on record, or provisioned.
pub(super) struct Failed {
    /// The leases to roll back.
    pub undo: Vec<Undo>,
    /// None where another choice may succeed.
    pub error: Option<Error>,
}

impl Failed {
    /// Rolls back, and fails with the first error and the one of that. A create that could not release what it had goes no
    /// further: its container would have it.
    pub(super) fn undo(self, context: &Leases<'_>) -> Result<()> {
        self.undo_by(|undo| roll_back(context, undo))
    }

    /// As `undo`, with another way to roll back.
    pub(super) fn undo_by(self, roll_back: impl FnOnce(Vec<Undo>) -> Result<()>) -> Result<()> {
        error::all([self.error.map_or(Ok(()), Err), roll_back(self.undo)])
    }
}

/// Releases a slice that no container had: it is not shown as this container's.
fn give_up(context: &Leases<'_>, held: &Held) -> Result<()> {
    if held.instance.outlives_leases() {
        return reclaim::release(context, held, Patience::NONE);
    }
    let patience = Patience::with_idle(&held.instance);
    context.store.lock("create")?.change(|state| {
        state.remove_lease(&held.lease.id);
        // Without the mark another create could take it as idle.
        state.update_instance(&held.instance.id, |i| i.state = InstanceState::Releasing)
    })?;
    context.release_instance(&held.instance, patience).map(drop)
}

/// Puts a piece of a request on record. Returns none if it cannot be had any more.
pub(super) fn record(
    context: &Leases<'_>,
    to: &impl Recipient,
    piece: Piece<'_>,
) -> Result<Option<Part>> {
    match piece {
        Piece::Slice(Step::Adopt(_, Some(idle)) | Step::Reuse(idle, _)) => {
            take_over(context, &idle, to)
        }
        Piece::Slice(Step::Adopt(slice, None)) => {
            let (on, origin) = (Resource::Mig(slice), Origin::Administrator);
            let instance = draft::instance(on, origin, InstanceState::Creating)?;
            let held = to.draft(instance.into(), Portion::All)?;
            context.store.lock(&to.purpose())?.put_new(&held)?;
            log(&held, "is adopted: it is not ours");
            Ok(Some(Part::Existing(held)))
        }
        Piece::Slice(Step::Create(slice)) => place(context, to, Placed::all(Resource::Mig(slice))),
        Piece::Placed(placed) => place(context, to, placed),
    }
}

/// Puts a portion on record. An instance whose leases are all on their way out is not joined, since it goes with the last
/// of them. Returns none if the portion could only have joined such a one.
fn place(context: &Leases<'_>, to: &impl Recipient, placed: Placed<'_>) -> Result<Option<Part>> {
    let ledger = context.store.lock(&to.purpose())?;
    let mut beside = placed.beside.into_iter();
    if let Some(instance) = beside.find_map(|peer| joinable(context, peer)) {
        let held = to.draft(instance, placed.portion)?;
        ledger.put_lease(held.lease.clone())?;
        log(&held, "is reserved");
        return Ok(Some(Part::Joined(held)));
    }
    if !placed.may_make {
        return Ok(None);
    }
    let instance = draft::instance(placed.on, Origin::Ours, InstanceState::Creating)?;
    let held = to.draft(instance.into(), placed.portion)?;
    ledger.put_new(&held)?;
    let fate = match (held.instance.slice(), held.lease.share()) {
        (None, None) => "is given whole",
        _ => "is reserved",
    };
    log(&held, fate);
    Ok(Some(Part::Place(held)))
}

/// Returns the instance of a lease that stays and so keeps it. A slice has to be there. The caller has the ledger's
/// lock.
fn joinable(context: &Leases<'_>, peer: &Held) -> Option<Arc<Instance>> {
    // The record of another that cannot be read does not say that it stays.
    let now = context.store.get(&peer.lease.id).ok().flatten()?;
    let is_there = now.instance.slice().is_none() || now.instance.state == InstanceState::Ready;
    (is_there && now.lease.state != LeaseState::Releasing).then_some(now.instance)
}

/// A claim logs its promise itself.
fn log(held: &Held, fate: &str) {
    if held.lease.container().is_some() {
        let container = held.lease.holder.name();
        tracing::info!(lease = held.lease.id.as_str(), container, "{held} {fate}");
    }
}

/// Hands out an idle slice, or one of a layout. Returns none if it has gone meanwhile. An idle one stays
/// *idle* until it is validated, so that the other containers of the pod wait for that (`share`).
fn take_over(context: &Leases<'_>, idle: &Instance, to: &impl Recipient) -> Result<Option<Part>> {
    let ledger = context.store.lock(&to.purpose())?;
    let state = context.store.state()?;
    let is_free = |now: &&Arc<Instance>| {
        let waits = now.idle_since().is_some() || now.is_of_layout();
        waits && !state.has_others(&now.id, None)
    };
    let Some(now) = state.instance(&idle.id).filter(is_free) else {
        return Ok(None);
    };
    let held = to.draft(now.clone(), Portion::All)?;
    ledger.put_lease(held.lease.clone())?;
    log(&held, "had no lease and is handed out");
    Ok(Some(Part::Existing(held)))
}
