//! Puts the choice of a create on record, and takes it back.

use super::plan::Step;
use super::requester::Requester;
use crate::context::LeaseContext;
use crate::error::{self, Result};
use crate::inventory::Inventory;
use crate::model::Level;
use crate::reclaim::{self, Patience};
use crate::store::{
    Held, Instance, InstanceState, LeaseState, MpsDaemon, Origin, Portion, Resource, Share,
    WholeGpu,
};

/// Leases on record whose slices are not ready: to be provisioned, or rolled back.
#[must_use]
pub(crate) struct Allocation {
    pub parts: Vec<Part>,
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
        Undo::Forget(lease) => context.store.lock("refused create")?.forget(&lease),
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

/// Releases a slice that no container had: it is not shown as this container's.
fn give_up(context: &LeaseContext<'_>, held: &Held, patience: Patience) -> Result<()> {
    if held.instance.is_adopted() {
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
        Step::Adopt(slice) => {
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
        Some(Level::Mps) => Resource::Mps(MpsDaemon {
            gpu: whole.clone(),
            limit_mib: share.memory_mib,
            booked_mib: share.booked_mib,
            process: None,
            restarts: 0,
        }),
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

/// Writes a new lease and its instance; `fate` is what becomes of its slice, for the log.
fn persist(context: &LeaseContext<'_>, held: &Held, fate: &str) -> Result<()> {
    let container = held.lease.holder.name();
    let ledger = context.store.lock(&format!("create of {container}"))?;
    ledger.sweep();
    ledger.put_new(held)?;
    tracing::info!(lease = held.lease.id.as_str(), container, "{held} {fate}");
    Ok(())
}

/// Hands an idle slice to the requester; none where it has gone meanwhile. The instance stays *idle* until
/// it is validated, so that the other containers of the pod wait for that (`share`).
fn take_over(
    context: &LeaseContext<'_>,
    idle: &Instance,
    requester: &Requester<'_>,
) -> Result<Option<Held>> {
    let ledger = context.store.lock(&requester.purpose())?;
    ledger.sweep();
    let now = context.store.instance_now(idle)?;
    let Some(now) = now.filter(|now| now.idle_since().is_some()) else {
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
        "{}, which was idle, is handed out",
        held.instance.resource
    );
    Ok(Some(held))
}
