//! Puts the choice of a create on record, and takes it back.

use super::plan::Step;
use super::requester::Requester;
use super::seats::SeatPlan;
use crate::context::LeaseContext;
use crate::counters::Outcome;
use crate::draft;
use crate::error::{self, Error, Result};
use crate::inventory::Inventory;
use crate::model::{InstanceId, Level};
use crate::reclaim::{self, Patience};
use crate::store::{
    Held, Instance, InstanceState, LeaseState, Ledger, MpsDaemon, Origin, Portion, Resource, Share,
    Slice, WholeGpu,
};

/// Leases on record whose slices are not ready: to be provisioned, or rolled back.
#[must_use]
pub(crate) struct Allocation {
    pub parts: Vec<Part>,
}

impl Allocation {
    /// Returns the end of the create if the allocation is carried out: what is made counts more than what was there.
    pub(super) fn end(&self) -> Outcome {
        let of = |part: &Part| match part {
            Part::Place(_) | Part::Joined(_) => Outcome::Created,
            Part::Existing(held, _) if held.instance.outlives_leases() => Outcome::Adopted,
            Part::Existing(..) => Outcome::Reused,
        };
        let ends: Vec<Outcome> = self.parts.iter().map(of).collect();
        let is_there = |end: &Outcome| ends.contains(end);
        let known = [Outcome::Created, Outcome::Adopted, Outcome::Reused];
        known.into_iter().find(is_there).unwrap_or(Outcome::Created)
    }
}

/// One slice of an allocation.
pub(crate) enum Part {
    /// A free place, where the slice is to be created.
    Place(Held),
    /// A GPU that other leases share.
    Joined(Held),
    /// An existing slice, to be validated; and how long its destruction is retried otherwise.
    Existing(Held, Patience),
}

/// A lease of a create that comes to nothing.
pub(super) enum Undo {
    /// The driver created nothing: an instance at that place is foreign.
    Forget(Held),
    Release(Held),
    /// The slice existed, and the container never had it.
    GiveUp(Held, Patience),
}

impl Part {
    /// Returns how a part is undone that was not provisioned.
    pub(super) fn undo(self) -> Undo {
        match self {
            Part::Place(lease) => Undo::Forget(lease),
            Part::Joined(lease) | Part::Existing(lease, _) => Undo::Release(lease),
        }
    }
}

/// Undoes all of these, whichever fail.
pub(crate) fn roll_back(context: &LeaseContext<'_>, leases: Vec<Undo>) -> Result<()> {
    error::all(leases.into_iter().map(|undo| match undo {
        Undo::Forget(lease) => {
            let ledger = context.store.lock("refused create")?;
            forget_parent(context, &ledger, &lease)?;
            ledger.forget(&lease)
        }
        Undo::Release(lease) => reclaim::release(context, &lease, Patience::default()),
        Undo::GiveUp(lease, patience) => {
            // An instance in use stays on record, and the next create or gc tries again.
            if let Err(e) = give_up(context, &lease, patience) {
                tracing::warn!("{}", e.line());
            }
            Ok(())
        }
    }))
}

/// Removes the record of the slice that was to be made for a seat, and of which nothing is there. It goes before its
/// daemon's: without that, a collector would look for an instance at its place.
fn forget_parent(context: &LeaseContext<'_>, ledger: &Ledger<'_>, held: &Held) -> Result<()> {
    let Some(id) = &held.instance.parent else {
        return Ok(());
    };
    match context.store.instance_with(id)? {
        Some(parent) if parent.state == InstanceState::Creating => {
            ledger.remove_instance(&parent).map(drop)
        }
        _ => Ok(()),
    }
}

/// Releases a slice that no container had: it is not shown as this container's.
fn give_up(context: &LeaseContext<'_>, held: &Held, patience: Patience) -> Result<()> {
    if held.instance.outlives_leases() {
        return reclaim::release(context, held, patience);
    }
    {
        let ledger = context.store.lock("create")?;
        // Without the mark another create could take it as idle.
        ledger.update_instance(&held.instance, |i| i.state = InstanceState::Releasing)?;
        ledger.remove_lease(&held.lease)?;
    }
    reclaim::release_instance_unless(context, &held.instance, patience, |_| None).map(drop)
}

/// Puts one step on record; none where an idle slice was destroyed meanwhile.
pub(super) fn record_step(
    context: &LeaseContext<'_>,
    step: Step,
    requester: &Requester<'_>,
) -> Result<Option<Part>> {
    Ok(match step {
        Step::Adopt(_, Some(of_layout)) => take_over(context, &of_layout, requester)?
            .map(|held| Part::Existing(held, Patience::NONE)),
        Step::Adopt(slice, None) => {
            let held = requester.draft_new(context, Resource::Mig(slice), Origin::Administrator)?;
            persist(context, &held, "is adopted: it is not ours")?;
            Some(Part::Existing(held, Patience::NONE))
        }
        Step::Reuse(idle, _) => take_over(context, &idle, requester)?
            .map(|held| Part::Existing(held, Patience::with_idle(&idle))),
        Step::Create(slice) => {
            let held = requester.draft_new(context, Resource::Mig(slice), Origin::Ours)?;
            persist(context, &held, "is to be made")?;
            Some(Part::Place(held))
        }
    })
}

/// Puts a whole GPU on record.
pub(super) fn record_whole(
    context: &LeaseContext<'_>,
    requester: &Requester<'_>,
    whole: WholeGpu,
) -> Result<Option<Part>> {
    let held = requester.draft_new(context, Resource::Gpu(whole), Origin::Ours)?;
    persist(context, &held, "is given whole")?;
    Ok(Some(Part::Place(held)))
}

/// Puts a share on record: on the instance of the GPU's other shares, or on a new one. An instance whose leases
/// are all on their way out is not joined, since it goes with the last of them.
pub(super) fn record_share(
    context: &LeaseContext<'_>,
    inventory: &Inventory,
    requester: &Requester<'_>,
    (whole, share): (WholeGpu, Share),
) -> Result<Part> {
    let portion = Portion::Share(share);
    let resource = match whole.level {
        // A daemon serves one container, so no share joins another.
        Some(Level::Mps) => daemon(whole.clone(), share, None),
        _ => Resource::Gpu(whole.clone()),
    };
    if let (Resource::Gpu(_), Some(level)) = (&resource, whole.level) {
        let ledger = context.store.lock(&requester.purpose())?;
        for peer in inventory.sharers(&whole.gpu_uuid, level) {
            let now = context.store.held_now(peer)?;
            let Some(now) = now.filter(|now| now.lease.state != LeaseState::Releasing) else {
                continue;
            };
            let held = requester.draft(context, now.instance, portion)?;
            ledger.sweep();
            ledger.put_lease(&held.lease)?;
            let container = held.lease.holder.name();
            tracing::info!(
                lease = held.lease.id.as_str(),
                container,
                "{held} is reserved"
            );
            return Ok(Part::Joined(held));
        }
    }
    let mut held = requester.draft_new(context, resource, Origin::Ours)?;
    held.lease.portion = portion;
    persist(context, &held, "is reserved")?;
    Ok(Part::Place(held))
}

/// Puts a seat on record: in a slice that has seats, or in a new one. Returns none if that slice is going by now.
pub(super) fn record_seat(
    context: &LeaseContext<'_>,
    inventory: &Inventory,
    requester: &Requester<'_>,
    plan: SeatPlan,
) -> Result<Option<Part>> {
    let (slice, share, parent) = match plan {
        SeatPlan::Join(join) => (join.slice, join.share, Some(join.parent)),
        SeatPlan::Create(slice, share, _) => (slice, share, None),
        SeatPlan::PeerCreates(..) => return Ok(None),
    };
    let ledger = context.store.lock(&requester.purpose())?;
    let joined = match &parent {
        Some(id) => match joinable(context, inventory, id)? {
            Some(instance) => Some(instance),
            None => return Ok(None),
        },
        None => None,
    };
    let is_new = joined.is_none();
    let slice_instance = match joined {
        Some(instance) => instance,
        None => {
            let state = (Origin::Ours, InstanceState::Creating);
            draft::instance(context, Resource::Mig(slice.clone()), state)?
        }
    };
    let portion = Portion::Share(share);
    let is_mps = slice.seats.is_some_and(|seats| seats.level == Level::Mps);
    let (held, parent) = match is_mps {
        false => (requester.draft(context, slice_instance, portion)?, None),
        true => {
            let gpu = gpu_of(inventory, &slice)?;
            let daemon = daemon(gpu, share, Some(slice));
            let mut held = requester.draft_new(context, daemon, Origin::Ours)?;
            held.instance.parent = Some(slice_instance.id.clone());
            held.lease.portion = portion;
            (held, Some(slice_instance))
        }
    };
    ledger.sweep();
    match (is_mps, is_new) {
        // The slice comes last: it is never on record without its daemon, so no collector takes it.
        (true, true) => ledger.put_new_on(&held, parent.as_ref())?,
        (true, false) | (false, true) => ledger.put_new(&held)?,
        (false, false) => ledger.put_lease(&held.lease)?,
    }
    let container = held.lease.holder.name();
    let lease = held.lease.id.as_str();
    tracing::info!(lease, container, "{held} is reserved");
    Ok(Some(match (is_mps, is_new) {
        (false, false) => Part::Joined(held),
        _ => Part::Place(held),
    }))
}

/// Returns the instance of a slice that one more seat may join: a lease that stays keeps it. The caller has the
/// ledger's lock.
fn joinable(
    context: &LeaseContext<'_>,
    inventory: &Inventory,
    id: &InstanceId,
) -> Result<Option<Instance>> {
    let slices = inventory.seat_slices();
    let Some(on) = slices.iter().find(|on| on.instance.id == *id) else {
        return Ok(None);
    };
    let now = context.store.instance_now(on.instance)?;
    let Some(now) = now.filter(|now| now.state == InstanceState::Ready) else {
        return Ok(None);
    };
    for peer in inventory.leases_in(id) {
        // The record of another that cannot be read does not say that it stays.
        let peer = context.store.lease_now(&peer.lease).ok().flatten();
        if peer.is_some_and(|lease| lease.state != LeaseState::Releasing) {
            return Ok(Some(now));
        }
    }
    Ok(None)
}

/// Returns the record of the GPU of a slice, which gives out the slice's memory.
fn gpu_of(inventory: &Inventory, slice: &Slice) -> Result<WholeGpu> {
    let mut gpus = inventory.snapshot.gpus.iter();
    let gpu = gpus.find(|gpu| gpu.uuid == slice.gpu_uuid);
    let gpu = gpu.ok_or_else(|| Error::new(format!("GPU {} is gone", slice.gpu_uuid)))?;
    let memory_mib = slice.seats.map_or(0, |seats| seats.memory_mib);
    Ok(WholeGpu::of(gpu, memory_mib, Some(Level::Mps)))
}

/// Returns a daemon that is not started yet.
fn daemon(gpu: WholeGpu, share: Share, slice: Option<Slice>) -> Resource {
    Resource::Mps(MpsDaemon {
        gpu,
        limit_mib: share.memory_mib,
        booked_mib: share.booked_mib,
        process: None,
        restarts: 0,
        slice,
    })
}

/// Writes a new lease and its instance; `fate` is what becomes of its slice, for the log.
fn persist(context: &LeaseContext<'_>, held: &Held, fate: &str) -> Result<()> {
    let container = held.lease.holder.name();
    let ledger = context.store.lock(&format!("create of {container}"))?;
    ledger.sweep();
    ledger.put_new(held)?;
    tracing::info!(lease = held.lease.id.as_str(), container, "{held} {fate}");
    Ok(())
}

/// Hands an idle slice, or one of a layout, to the requester; none where it has gone meanwhile. An idle one stays
/// *idle* until it is validated, so that the other containers of the pod wait for that (`share`).
fn take_over(
    context: &LeaseContext<'_>,
    idle: &Instance,
    requester: &Requester<'_>,
) -> Result<Option<Held>> {
    let ledger = context.store.lock(&requester.purpose())?;
    ledger.sweep();
    let now = context.store.instance_now(idle)?;
    let waits = |now: &Instance| now.idle_since().is_some() || now.is_of_layout();
    let Some(now) = now.filter(waits) else {
        return Ok(None);
    };
    if !context.store.leases_on(&now.id)?.is_empty() {
        return Ok(None);
    }
    let held = requester.draft(context, now, Portion::All)?;
    ledger.put_lease(&held.lease)?;
    tracing::info!(
        lease = held.lease.id.as_str(),
        container = requester.holder.key.id,
        "{}, which had no lease, is handed out",
        held.instance.resource
    );
    Ok(Some(held))
}
