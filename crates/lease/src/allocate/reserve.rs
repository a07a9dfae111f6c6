//! Looks for room, chooses and puts the choice on record, one create at a time.

use super::admit::{Limits, admit, subject_of};
use super::denial::Denial;
use super::gpus;
use super::occupied;
use super::pod::{self, Peer};
use super::record::{
    Allocation, Part, SharePlace, record_share, record_step, record_whole, roll_back,
};
use super::requester::{Requester, Tried};
use super::seats::{SeatPlan, SeatPlanner};
use super::shares;
use super::shares::Terms;
use super::usable_plan;
use super::usable_plan::usable_plan;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::inventory::Inventory;
use crate::leases::Leases;
use crate::model::{Gpu, GpuUuid, MigMode, Snapshot};
use crate::placement::{self, Constraints, GpuObstacle, GpuUse, Rejection, ShareShortage};
use crate::policy::Kind;
use crate::queue::{self, LastLook, Turn, Wants};
use crate::refusal::NoRoom;
use crate::request::{Seat, ShareSize, Wanted};
use crate::store::{Held, Instance, Lock, Resource};
use std::cell::RefCell;

/// The outcome of one look for room. A lease in it is on record.
pub(super) enum Outcome {
    Reserved(Allocation),
    /// A lease on the slice of another container of the pod.
    Shared(Held),
    /// Another container creates the slice, one of the pod or one with a seat: this is its lease.
    PeerCreates(Held),
    /// Idle slices that have to be destroyed first.
    Evict(Vec<Instance>),
    /// A create of the same id that ended meanwhile has left a lease, which has to go first.
    Left,
    Denied(Denial<NoRoom>),
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
    driver.prepare()?;
    if let Wanted::Share(_) | Wanted::Seat(_) = requester.request.wanted {
        requester.levels(context.config);
    }
    let choice = {
        let plan = context.store.lock_plan(&requester.purpose())?;
        let chooser = Chooser {
            context,
            driver,
            requester,
            tried,
            turn,
            plan: &plan,
        };
        chooser.choose()?
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

/// One choice under the plan's lock.
struct Chooser<'a, 't, D> {
    context: &'a Leases<'a>,
    driver: &'a D,
    requester: &'a Requester<'a>,
    tried: &'a mut Tried,
    turn: &'a mut Turn<'t>,
    plan: &'a Lock,
}

impl<D: Queries> Chooser<'_, '_, D> {
    fn choose(mut self) -> Result<Choice> {
        let (context, driver, requester) = (self.context, self.driver, self.requester);
        let earlier = self.turn.earlier()?;
        let inventory = Inventory::locked(context, driver, earlier, self.plan)?;
        let (holder, operation) = (requester.holder, requester.operation.id());
        if occupied::by_same_id(context, holder, operation, &inventory.leases)? {
            return Ok(Choice::of(Outcome::Left));
        }
        if let Some(path) = &requester.cgroup.path {
            occupied::by_lease(context, requester.holder, path, &inventory.leases)?;
        }
        let slices = match &requester.request.wanted {
            Wanted::Slices(slices) => slices,
            Wanted::Share(sizes) => return self.choose_share(sizes, inventory),
            Wanted::Seat(seat) => return self.choose_seat(seat, inventory),
            Wanted::Gpus(count) => return self.choose_gpus(*count, inventory),
        };
        let snapshot = &inventory.snapshot;
        let policy = &context.config.policy;
        let subject = subject_of(requester.holder);
        let admitted = admit(policy, snapshot, slices, &subject)?;
        let blockers = queue::reservations(&inventory.waiting);
        let (ours, held) = (inventory.ours(), inventory.held_gpus());
        let wanted = Constraints {
            blockers: &blockers,
            ours: &ours,
            unfit: &held,
            ..admitted.wanted()
        };
        if let Some(choice) = self.before_places(&inventory, Some(&wanted))? {
            return Ok(choice);
        }
        let limits = Limits::new(policy, subject, &inventory);
        let parts = (&inventory, &wanted, &limits);
        let alternatives = &admitted.alternatives;
        match usable_plan(context.config, driver, parts, self.tried, |p| {
            p.plan(alternatives)
        }) {
            Ok(plan) if !plan.evict.is_empty() => Ok(Choice::of(Outcome::Evict(plan.evict))),
            Ok(plan) => {
                let record = |step| record_step(context, step, requester);
                Ok(record_all(plan.steps, record, self.turn))
            }
            Err(denial) => {
                if let Denial::Room(Rejection::NoCapacity { .. }) = denial {
                    let policy = (policy, subject_of(requester.holder));
                    let could_use = usable_plan::could_use(policy, snapshot, &admitted);
                    let wants = Wants::Slices { admitted, ours };
                    let look = LastLook::new(inventory.snapshot, wants);
                    self.turn.join(self.plan, could_use, look)?;
                }
                Ok(Choice::of(Outcome::Denied(denial.of_any_kind())))
            }
        }
    }

    /// Returns the outcome of a create that needs no new place, or whose place waits for idle slices to go.
    fn before_places(
        &mut self,
        inventory: &Inventory,
        wanted: Option<&Constraints<'_>>,
    ) -> Result<Option<Choice>> {
        match pod::share(self.context, self.driver, inventory, wanted, self.requester)? {
            Some(Peer::Has(lease)) => {
                self.turn.step_aside();
                return Ok(Some(Choice::of(Outcome::Shared(*lease))));
            }
            Some(Peer::Creates(peer)) => return Ok(Some(Choice::of(Outcome::PeerCreates(*peer)))),
            None => {}
        }
        let over = { inventory.idle_over() }.filter(|i| !self.tried.idle.contains(&i.id));
        let over: Vec<Instance> = over.cloned().collect();
        Ok((!over.is_empty()).then(|| Choice::of(Outcome::Evict(over))))
    }

    /// Chooses whole GPUs.
    fn choose_gpus(&mut self, count: u32, inventory: Inventory) -> Result<Choice> {
        let (context, driver, requester) = (self.context, self.driver, self.requester);
        let policy = &context.config.policy;
        policy.check_gpus(count)?;
        if let Some(choice) = self.before_places(&inventory, None)? {
            return Ok(choice);
        }
        let subject = subject_of(requester.holder);
        let limits = Limits::new(policy, subject.clone(), &inventory);
        let candidates = gpus::candidates(driver, &inventory, (policy, &subject));
        match gpus::plan(&candidates, &inventory, &limits, count) {
            Ok(chosen) => {
                let take = |whole| record_whole(context, requester, whole);
                Ok(record_all(chosen, take, self.turn))
            }
            Err(denial) => {
                if let Denial::Room(shortage) = &denial
                    && shortage.may_pass()
                {
                    let of = placement::awaited(&candidates);
                    let has_foreign = shortage.has_foreign();
                    self.await_gpus(count, of, inventory.snapshot, has_foreign)?;
                }
                Ok(Choice::of(Outcome::Denied(denial.of_any_kind())))
            }
        }
    }

    /// Joins the queue for GPUs. A look with processes of others is repeated soon.
    fn await_gpus(
        &mut self,
        count: u32,
        of: Vec<GpuUuid>,
        look: Snapshot,
        has_foreign: bool,
    ) -> Result<()> {
        let could_use = of.iter().map(|gpu| (gpu.clone(), Vec::new())).collect();
        let look = LastLook::new(look, Wants::Gpus { count, of });
        let look = if has_foreign { look.soon() } else { look };
        self.turn.join(self.plan, could_use, look)
    }

    /// Chooses the GPU of a share.
    fn choose_share(&mut self, sizes: &[ShareSize], inventory: Inventory) -> Result<Choice> {
        let (context, driver, requester) = (self.context, self.driver, self.requester);
        let policy = &context.config.policy;
        let gpus = &inventory.snapshot.gpus;
        let is_in_mig = |gpu: &Gpu| gpu.mig == MigMode::Enabled && !gpu.ends_mig();
        let terms = match Terms::new(context.config, requester.levels(context.config)) {
            // Whatever level the machine could have, none of its GPUs is for shares.
            Err(_) if policy.check_kind(Kind::Share).is_ok() && gpus.iter().all(is_in_mig) => {
                let mig = || GpuObstacle::Used(GpuUse::Mig { pending: false });
                let shortage = ShareShortage {
                    sizes: sizes.to_vec(),
                    taken: gpus.iter().map(|gpu| (gpu.index, mig())).collect(),
                    unreadable: Vec::new(),
                    awaited: Vec::new(),
                };
                let denial = Denial::Room(shortage).of_any_kind();
                return Ok(Choice::of(Outcome::Denied(denial)));
            }
            terms => terms?,
        };
        if let Some(choice) = self.before_places(&inventory, None)? {
            return Ok(choice);
        }
        let subject = subject_of(requester.holder);
        let limits = Limits::new(policy, subject.clone(), &inventory);
        let candidates = shares::candidates(driver, &inventory, (policy, &subject), terms);
        match shares::plan(&candidates, &inventory, &limits, (sizes, terms)) {
            Ok((whole, share)) => {
                let level = share.enforcement.level();
                let place = SharePlace {
                    share,
                    beside: inventory.sharers(&whole.gpu_uuid, level).collect(),
                    new: Some(Resource::Gpu(whole)),
                };
                let take = |place| record_share(context, requester, place);
                Ok(record_all(vec![place], take, self.turn))
            }
            Err(denial) => {
                if let Denial::Room(shortage) = &denial
                    && shortage.may_pass()
                {
                    let of = shortage.awaited.clone();
                    let has_foreign = shortage.has_foreign();
                    self.await_gpus(1, of, inventory.snapshot, has_foreign)?;
                }
                Ok(Choice::of(Outcome::Denied(denial.of_any_kind())))
            }
        }
    }

    /// Chooses the slice of a seat.
    fn choose_seat(&mut self, seat: &Seat, inventory: Inventory) -> Result<Choice> {
        let (context, driver, requester) = (self.context, self.driver, self.requester);
        let (policy, subject) = (&context.config.policy, subject_of(requester.holder));
        let terms = Terms::new(context.config, requester.levels(context.config))?;
        let snapshot = &inventory.snapshot;
        let admitted = admit(policy, snapshot, &seat.slices, &subject)?;
        let blockers = queue::reservations(&inventory.waiting);
        let ours = inventory.ours();
        let wanted = Constraints {
            blockers: &blockers,
            ours: &ours,
            ..admitted.wanted()
        };
        if let Some(choice) = self.before_places(&inventory, None)? {
            return Ok(choice);
        }
        let planner = SeatPlanner {
            driver,
            inventory: &inventory,
            policy,
            subject,
            seat,
            terms,
            levels: RefCell::default(),
        };
        let planned = planner.plan((&admitted.alternatives, &wanted), self.tried);
        let could_use = match &planned {
            Err(Denial::Room(shortage)) if shortage.may_pass() => {
                Some(planner.could_use(&admitted))
            }
            _ => None,
        };
        let mut take = |place| {
            let record = |place| record_share(context, requester, place);
            record_all(vec![place], record, self.turn)
        };
        match planned {
            Ok(SeatPlan::Create(.., idle)) if !idle.is_empty() => {
                Ok(Choice::of(Outcome::Evict(idle)))
            }
            Ok(SeatPlan::PeerCreates(_, peer)) => Ok(Choice::of(Outcome::PeerCreates(*peer))),
            Ok(SeatPlan::Create(slice, share, _)) => Ok(take(SharePlace {
                share: *share,
                beside: Vec::new(),
                new: Some(Resource::Mig(*slice)),
            })),
            Ok(SeatPlan::Join(join)) => Ok(take(SharePlace {
                share: join.share,
                beside: inventory.leases_on(&join.instance).collect(),
                new: None,
            })),
            Err(denial) => {
                if let Some(could_use) = could_use {
                    let wants = Wants::Slices { admitted, ours };
                    let look = LastLook::new(inventory.snapshot, wants);
                    self.turn.join(self.plan, could_use, look)?;
                }
                Ok(Choice::of(Outcome::Denied(denial.of_any_kind())))
            }
        }
    }
}

/// Puts every part of a plan on record. `record` returns none if a part cannot be had any more.
fn record_all<S>(
    planned: Vec<S>,
    record: impl Fn(S) -> Result<Option<Part>>,
    turn: &mut Turn<'_>,
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
