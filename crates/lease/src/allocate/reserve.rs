//! Chooses places and puts them on record, one create at a time.

use super::admit::{Limits, admit, subject_of};
use super::denial::Denial;
use super::plan::Step;
use super::requester::{Requester, Tried};
use super::share::{self, Peer};
use super::usable_plan::usable_plan;
use super::{candidates, gpus, occupied};
use crate::context::LeaseContext;
use crate::error::{self, Error, Result};
use crate::gpu::Queries;
use crate::inventory::Inventory;
use crate::model::GpuUuid;
use crate::placement::{self, Constraints, Rejection};
use crate::queue::{self, LastLook, Turn, Wants};
use crate::reclaim::{self, Patience};
use crate::refusal::NoRoom;
use crate::request::Wanted;
use crate::store::{Held, Instance, InstanceState, Lock, Origin, Resource};

/// The outcome of one look for room. A lease in it is on record.
pub(super) enum Outcome {
    Reserved(Allocation),
    /// A lease on the slice of another container of the pod.
    Shared(Held),
    /// Another container of the pod creates the slice: this is its lease.
    PeerCreates(Held),
    /// Idle slices that have to be destroyed first.
    Evict(Vec<Instance>),
    Denied(Denial<NoRoom>),
}

/// Leases on record whose slices are not ready: to be provisioned, or rolled back.
#[must_use]
pub(crate) struct Allocation {
    pub parts: Vec<Part>,
}

/// One slice of an allocation.
pub(crate) enum Part {
    /// A free place, where the slice is to be created.
    Place(Held),
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
            Part::Existing(lease, _) => Undo::Release(lease),
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

/// Looks at the machine, chooses and puts the choice on record, under the plan's lock. The look at the
/// driver is under the lock too: two hundred creates at once that look first and queue afterwards take six
/// times as long.
pub(super) fn reserve(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    requester: &Requester<'_>,
    tried: &mut Tried,
    turn: &mut Turn,
) -> Result<Outcome> {
    // The driver takes its time to start, and other creates can choose meanwhile.
    driver.prepare()?;
    let choice = {
        let plan = context.store.lock_plan(&requester.purpose())?;
        choose(context, driver, requester, tried, turn, &plan)?
    };
    // Rolled back without the plan's lock: a release takes the GPU's.
    let undone = |parts: Vec<Part>| {
        let undo = parts.into_iter().map(Part::undo).collect();
        roll_back(context, undo)
    };
    match choice {
        Choice::Outcome(outcome) => Ok(*outcome),
        Choice::Interrupted(parts, None) => undone(parts).map(|()| Outcome::Evict(Vec::new())),
        Choice::Interrupted(parts, Some(e)) => Err(e.and(undone(parts).err())),
    }
}

enum Choice {
    Outcome(Box<Outcome>),
    /// Not all parts could be put on record: an idle slice had gone, or there was an error.
    Interrupted(Vec<Part>, Option<Error>),
}

impl Choice {
    fn of(outcome: Outcome) -> Choice {
        Choice::Outcome(Box::new(outcome))
    }
}

fn choose(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    requester: &Requester<'_>,
    tried: &mut Tried,
    turn: &mut Turn,
    plan: &Lock,
) -> Result<Choice> {
    let earlier = turn.earlier(&context.store)?;
    let inventory = Inventory::locked(context, driver, earlier, plan)?;
    if let Some(path) = &requester.cgroup.path {
        occupied::by_lease(&context.store, requester.holder, path, &inventory.leases)?;
    }
    let slices = match &requester.request.wanted {
        Wanted::Slices(slices) => slices,
        Wanted::Gpus(count) => {
            return choose_gpus(
                context,
                driver,
                (requester, *count),
                inventory,
                (tried, turn),
                plan,
            );
        }
    };
    let snapshot = &inventory.snapshot;
    let policy = &context.config.policy;
    let subject = subject_of(requester.holder);
    let admitted = admit(policy, snapshot, slices, &subject)?;
    let blockers = queue::reservations(&inventory.waiting, snapshot);
    let ours = inventory.ours();
    let wanted = Constraints {
        blockers: &blockers,
        ours: &ours,
        ..admitted.wanted()
    };
    let sharer = (Some(&wanted), requester);
    if let Some(choice) = before_places(context, driver, &inventory, sharer, (tried, turn))? {
        return Ok(choice);
    }
    let limits = Limits::new(policy, subject, &inventory);
    let parts = (&inventory, &wanted, &limits);
    let alternatives = &admitted.alternatives;
    match usable_plan(context.config, driver, parts, tried, |p| {
        p.plan(alternatives)
    }) {
        Ok(plan) if !plan.evict.is_empty() => Ok(Choice::of(Outcome::Evict(plan.evict))),
        Ok(plan) => {
            let record = |step| record_step(context, step, requester);
            Ok(record_all(plan.steps, record, turn))
        }
        Err(denial) => {
            if let Denial::Room(Rejection::NoCapacity { .. }) = denial {
                let policy = (policy, subject_of(requester.holder));
                let could_use = candidates::could_use(policy, snapshot, &admitted);
                let wants = Wants::Slices { admitted, ours };
                let look = LastLook::new(inventory.snapshot, wants);
                join(context, requester, turn, plan, (could_use, look))?;
            }
            Ok(Choice::of(Outcome::Denied(denial.of_any_kind())))
        }
    }
}

/// Returns the outcome of a create that needs no new place, or whose place waits for idle slices to go.
fn before_places(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    inventory: &Inventory,
    (wanted, requester): (Option<&Constraints<'_>>, &Requester<'_>),
    (tried, turn): (&Tried, &mut Turn),
) -> Result<Option<Choice>> {
    match share::share(context, driver, inventory, wanted, requester)? {
        Some(Peer::Has(lease)) => {
            turn.step_aside();
            return Ok(Some(Choice::of(Outcome::Shared(*lease))));
        }
        Some(Peer::Creates(peer)) => return Ok(Some(Choice::of(Outcome::PeerCreates(*peer)))),
        None => {}
    }
    let over = { inventory.idle_over() }.chain(&inventory.idle_of_earlier_boot);
    let over = over.filter(|i| !tried.idle.contains(&i.id));
    let over: Vec<Instance> = over.cloned().collect();
    Ok((!over.is_empty()).then(|| Choice::of(Outcome::Evict(over))))
}

/// Chooses whole GPUs.
fn choose_gpus(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    (requester, count): (&Requester<'_>, u32),
    inventory: Inventory,
    (tried, turn): (&Tried, &mut Turn),
    plan: &Lock,
) -> Result<Choice> {
    let policy = &context.config.policy;
    policy.check_gpus(count)?;
    let sharer = (None, requester);
    if let Some(choice) = before_places(context, driver, &inventory, sharer, (tried, turn))? {
        return Ok(choice);
    }
    let subject = subject_of(requester.holder);
    let limits = Limits::new(policy, subject.clone(), &inventory);
    let candidates = gpus::candidates(driver, &inventory, (policy, &subject));
    match gpus::plan(&candidates, &inventory, &limits, count) {
        Ok(chosen) => {
            let take = |whole| {
                let held = requester.draft_new(context, Resource::Gpu(whole), Origin::Ours)?;
                persist(context, &held, "is given whole")?;
                Ok(Some(Part::Place(held)))
            };
            Ok(record_all(chosen, take, turn))
        }
        Err(denial) => {
            if let Denial::Room(shortage) = &denial
                && shortage.may_pass()
            {
                let of = placement::awaited(&candidates);
                let could_use = of.iter().map(|gpu| (gpu.clone(), Vec::new())).collect();
                let has_foreign = shortage.has_foreign();
                let look = LastLook::new(inventory.snapshot.clone(), Wants::Gpus { count, of });
                let look = if has_foreign { look.soon() } else { look };
                join(context, requester, turn, plan, (could_use, look))?;
            }
            Ok(Choice::of(Outcome::Denied(denial.of_any_kind())))
        }
    }
}

/// Joins the queue, with profile ids by GPU.
fn join(
    context: &LeaseContext<'_>,
    requester: &Requester<'_>,
    turn: &mut Turn,
    plan: &Lock,
    (could_use, look): (Vec<(GpuUuid, Vec<u32>)>, LastLook),
) -> Result<()> {
    let request = requester.request.wanted.written();
    let container = &requester.holder.key.id;
    turn.join(
        (&context.store, plan),
        (container, request, could_use),
        look,
    )
}

/// Puts every part of a plan on record. `record` returns none if a part cannot be had any more.
fn record_all<S>(
    planned: Vec<S>,
    record: impl Fn(S) -> Result<Option<Part>>,
    turn: &mut Turn,
) -> Choice {
    let mut parts = Vec::new();
    for one in planned {
        match record(one) {
            Ok(Some(part)) => parts.push(part),
            Ok(None) => return Choice::Interrupted(parts, None),
            Err(e) => return Choice::Interrupted(parts, Some(e)),
        }
    }
    // Several may come to nothing and be rolled back: until all are there, others wait behind them.
    if parts.len() == 1 {
        turn.step_aside();
    }
    Choice::of(Outcome::Reserved(Allocation { parts }))
}

/// Puts one step on record; none where an idle slice was destroyed meanwhile.
fn record_step(
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

/// Writes a new lease and its instance; `fate` is what becomes of its slice, for the log.
fn persist(context: &LeaseContext<'_>, held: &Held, fate: &str) -> Result<()> {
    let container = held.lease.holder.name();
    let ledger = context.store.lock(&format!("create of {container}"))?;
    ledger.sweep();
    ledger.put_new(held)?;
    let resource = &held.instance.resource;
    tracing::info!(
        lease = held.lease.id.as_str(),
        container,
        "{resource} {fate}"
    );
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
    let held = requester.draft(context, now)?;
    ledger.put_lease(&held.lease)?;
    tracing::info!(
        lease = held.lease.id.as_str(),
        container = requester.holder.key.id,
        "{}, which was idle, is handed out",
        held.instance.resource
    );
    Ok(Some(held))
}
