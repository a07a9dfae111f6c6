//! The answer that a create would get now: the same rules, limits and places, and nothing written.

pub use super::gpus::{GpuOnTrial, GpuOutcome, GpuTrial, shortage_error, try_gpus};
pub use super::seats::{SeatOnTrial, SeatOutcome, SeatTrial, no_seat_error, try_seat};
pub use super::shares::{ShareOnTrial, ShareOutcome, ShareTrial, no_share_error, try_share};

use super::admit::{Limits, admit, all_denied, holder_subject, subject_of};
use super::denial::Denial;
use super::plan::Step;
use super::requester::{Requester, Tried};
use super::usable_plan::usable_plan;
use crate::admitted::Admitted;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::inventory::Inventory;
use crate::leases::Leases;
use crate::model::GpuUuid;
use crate::placement::{
    self, Constraints, Diagnosis, GpuReport, MAX_STEPS, Movable, Rejection, Reservation, Selection,
    Site, Slot,
};
use crate::policy::Subject;
use crate::queue::{Turn, reservations};
use crate::refusal::{NoRoom, Refusal};
use crate::request::{Alternative, Slice, Slices, Wanted};
use crate::store::Held;
use std::cell::RefCell;

/// A request on trial: the rules, limits and slots of a create, without any write.
pub struct WhatIf<'a, D> {
    config: &'a Config,
    driver: &'a D,
    inventory: Inventory,
    admitted: Admitted,
    limits: Limits<'a>,
    reserved: Vec<Slot>,
    idle: Vec<Slot>,
    quarantined: Vec<Slot>,
    movable: Vec<Movable>,
    ours: Vec<Slot>,
    held: Vec<(GpuUuid, String)>,
    blockers: Vec<Reservation>,
    /// The driver's answer about an instance holds for every alternative.
    tried: RefCell<Tried>,
}

/// The outcome of one alternative of a request.
pub enum Outcome {
    /// A create would get these slots.
    Fits(Fit),
    /// The alternative exceeds a limit.
    Limited(Error),
    /// The alternative gets no slot.
    No(Diagnosis),
}

/// The place of each requested slice.
pub struct Fit {
    /// The slot of each requested slice, and its source.
    pub sites: Vec<(Site, Source)>,
    /// The number of idle slices that a create would destroy.
    pub evicts: usize,
}

/// The way in which a create gets a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// runmig creates it.
    Made,
    /// runmig hands out an idle slice.
    Idle,
    /// runmig hands out an instance that an administrator made.
    Adopted,
}

impl<'a, D: Queries> WhatIf<'a, D> {
    /// The requests that wait in the inventory came before this one.
    pub fn new(
        (config, driver): (&'a Config, &'a D),
        inventory: &Inventory,
        request: &Slices,
        subject: Subject,
    ) -> Result<Self> {
        let (mut movable, holders) = inventory.movable();
        let inventory = inventory.without_idle_over();
        let snapshot = &inventory.snapshot;
        let policy = &config.policy;
        for (one, holders) in movable.iter_mut().zip(holders) {
            let rules = |h: &Held| policy.excluded(&snapshot.gpus, &holder_subject(&h.lease));
            one.excluded = holders.into_iter().flat_map(rules).collect();
        }
        Ok(WhatIf {
            config,
            driver,
            admitted: admit(policy, snapshot, request, &subject)?,
            limits: Limits::new(policy, subject, &inventory),
            reserved: inventory.reserved(),
            idle: inventory.idle(),
            quarantined: inventory.quarantined(),
            movable,
            ours: inventory.ours(),
            held: inventory.held_gpus(),
            blockers: reservations(&inventory.waiting),
            tried: RefCell::default(),
            inventory,
        })
    }

    /// Returns the alternatives that the policy admits.
    pub fn alternatives(&self) -> &[Alternative] {
        &self.admitted.alternatives
    }

    /// Returns the number of a GPU's memory slices that could not be released.
    pub fn quarantined_on(&self, gpu: &GpuUuid) -> u32 {
        let here = self.quarantined.iter().filter(|r| r.gpu == *gpu);
        here.map(|r| r.placement.size).sum()
    }

    fn wanted(&self) -> Constraints<'_> {
        Constraints {
            blockers: &self.blockers,
            ours: &self.ours,
            unfit: &self.held,
            idle: &self.idle,
            quarantined: &self.quarantined,
            ..self.admitted.wanted()
        }
    }

    fn excluded(&self, asked: &Alternative, slice: &Slice) -> Vec<(GpuUuid, String)> {
        let wanted = self.wanted().of(slice);
        self.limits
            .excluded(&self.inventory.snapshot, asked, &wanted)
    }

    /// Returns each GPU's outcome for one alternative, in the order in which a create would take
    /// them; GPUs without room come after those with room. Of several slices it is that of the one without a slot.
    pub fn gpus(&self, asked: &Alternative, outcome: &Outcome) -> Vec<GpuReport<'_>> {
        let (snapshot, wanted) = (&self.inventory.snapshot, self.wanted());
        let slice = match outcome {
            Outcome::No(diagnosis) => {
                { diagnosis.rejection.causes().first() }.map_or(&asked.slice, |cause| cause.slice())
            }
            _ => &asked.slice,
        };
        // A request that is too much everywhere still names its place.
        let excluded = match outcome {
            Outcome::Limited(_) => wanted.excluded.to_vec(),
            _ => self.excluded(asked, slice),
        };
        let wanted = Constraints {
            excluded: &excluded,
            ..wanted
        };
        match outcome {
            Outcome::No(Diagnosis { selection, .. }) => {
                let wanted = selection.constraints(&wanted);
                placement::explain(snapshot, &selection.reserved, slice, &wanted)
            }
            _ => placement::explain(snapshot, &self.reserved, slice, &wanted),
        }
    }

    /// Returns the outcome of one alternative. `patience`: how many steps to search for slices that would
    /// have to lie elsewhere.
    pub fn outcome(&self, asked: &Alternative, patience: u32) -> Outcome {
        let wanted = self.wanted();
        let parts = (&self.inventory, &wanted, &self.limits);
        match usable_plan(
            self.config,
            self.driver,
            parts,
            &mut self.tried.borrow_mut(),
            |planner| planner.plan_one(asked),
        ) {
            Ok(plan) => Outcome::Fits(Fit {
                sites: plan.steps.iter().map(site).collect(),
                evicts: plan.evict.len(),
            }),
            Err(Denial::Limit(over)) => Outcome::Limited(over),
            Err(Denial::Room(no)) => {
                let there = (&self.inventory.snapshot, &*self.reserved);
                let wanted = Constraints {
                    excluded: &self.excluded(asked, &asked.slice),
                    ..wanted
                };
                let found = placement::diagnose(there, &self.movable, asked, &wanted, patience);
                Outcome::No(found.unwrap_or_else(|| Diagnosis {
                    selection: Selection::new(&self.reserved, &self.idle),
                    rejection: no,
                }))
            }
        }
    }

    /// Returns the error of a create with this rejection.
    pub fn refusal(&self, no: Rejection) -> Error {
        Refusal {
            rejection: &no,
            blockers: &self.inventory.waiting,
            waited: None,
        }
        .error()
    }

    /// A create's error, where no outcome is that it fits.
    pub fn error(&self, outcomes: Vec<Outcome>) -> Option<Error> {
        Some(match no_room(outcomes)? {
            Denial::Room(no) => self.refusal(no),
            Denial::Limit(over) => over,
        })
    }
}

/// Returns the obstacle to all alternatives; none if one of them fits.
pub(super) fn no_room(outcomes: Vec<Outcome>) -> Option<Denial> {
    let (mut noes, mut over) = (Vec::new(), None);
    for outcome in outcomes {
        match outcome {
            Outcome::Fits(_) => return None,
            Outcome::Limited(e) => over = over.or(Some(e)),
            Outcome::No(diagnosis) => noes.push(diagnosis.rejection),
        }
    }
    Some(all_denied(noes, over))
}

fn site(step: &Step) -> (Site, Source) {
    let slice = step.slice();
    let site = Site {
        gpu_uuid: slice.gpu_uuid.clone(),
        gpu_index: slice.gpu_index,
        profile: slice.profile.clone(),
        placement: slice.placement,
    };
    let source = match step {
        Step::Create(_) => Source::Made,
        Step::Adopt(..) => Source::Adopted,
        Step::Reuse(..) => Source::Idle,
    };
    (site, source)
}

/// Adds to the answer the slices that would have to lie elsewhere. The search has a new look at the
/// machine, without a lock, since it decides nothing. If it fails, or finds room after all, the
/// answer stays as it was.
pub(super) fn explained(
    context: &Leases<'_>,
    requester: &Requester<'_>,
    turn: &mut Turn<'_>,
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
    context: &Leases<'_>,
    requester: &Requester<'_>,
    slices: &Slices,
    turn: &mut Turn<'_>,
) -> Result<Option<Rejection>> {
    let driver = context.driver();
    let inventory = Inventory::read(context, &driver, turn.earlier()?)?;
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
