//! Brings GPUs to a layout: destroys what it does not want, creates what is missing, and leaves every lease alone.
//!
//! `look` reads driver and ledger, `in_use` the processes, `plan` decides, `journal` puts the changes on record, `carry`
//! makes them, `modes` switches MIG on and off, and `wait` waits for leases that are in the way. A kill leaves instances that
//! are whole, or records that a collector or the next apply ends.

mod carry;
mod in_use;
mod journal;
mod look;
mod modes;
mod outcome;
mod plan;
mod wait;

pub use outcome::{Applied, Change, Made, PlannedInstance, PlannedMode};

use crate::context::LeaseContext;
use crate::error::{Error, Result};
use crate::gpu::{Metered, Mig, Queries};
use crate::layout::{Checkpoint, Configuration};
use crate::model::{GpuUuid, MigMode};
use crate::reclaim;
use crate::store::Operation;
use in_use::InUse;
use journal::Journaled;
use look::GpuState;
use modes::Holds;
use plan::Plan;
use std::collections::BTreeSet;
use std::time::Duration;
use wait::Wait;

/// How often the machine may change under the eyes of an apply.
const MAX_TRIES: usize = 16;

/// The state to reach.
#[derive(Clone, Copy)]
pub enum Goal<'a> {
    /// A configuration of a file.
    Layout(&'a Configuration),
    /// The state in a checkpoint, to the place.
    Checkpoint(&'a Checkpoint),
}

impl Goal<'_> {
    /// Returns the name of the layout on record.
    fn name(&self) -> &str {
        match self {
            Goal::Layout(configuration) => &configuration.name,
            Goal::Checkpoint(_) => "checkpoint",
        }
    }
}

/// The options of an apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyOptions {
    /// Sets the MIG modes alone.
    pub modes_only: bool,
    /// Leaves a GPU as it is whose new MIG mode waits for a reset.
    pub skip_reset: bool,
    /// Changes nothing, and tells the plan.
    pub dry_run: bool,
    /// Leaves out the GPUs that do not allow the changes.
    pub partial: bool,
    /// The time to wait for leases and processes that are in the way.
    pub wait: Duration,
}

/// Brings the GPUs to a goal.
///
/// # Errors
/// The goal cannot be reached: then nothing has changed. A failed call of the driver: then the changes before it stay,
/// and the next apply completes them. Leases and processes in the way are no error, see [`Applied::obstacles`].
pub(crate) fn apply(
    context: &LeaseContext<'_>,
    goal: Goal<'_>,
    options: ApplyOptions,
) -> Result<Applied> {
    let partial = options.partial;
    let attempt = |leaves_held| {
        let leaves = Leaves {
            refused: partial,
            held: leaves_held,
        };
        attempt(context, goal, options, leaves)
    };
    if options.wait.is_zero() || options.dry_run {
        return attempt(partial).map(|(applied, _)| applied);
    }
    let mut turn = Wait::begin(context, goal.name(), options.wait)?;
    loop {
        let is_last = turn.is_over();
        let (applied, held) = attempt(partial && is_last)?;
        if held.is_empty() || is_last {
            return Ok(applied);
        }
        turn.wait(context, held)?;
    }
}

/// The GPUs that an apply leaves out.
#[derive(Clone, Copy)]
struct Leaves {
    /// Those that cannot have the goal, whatever ends.
    refused: bool,
    /// Those with leases or processes in the way.
    held: bool,
}

/// The profiles of each GPU with leases or processes in the way.
type HeldGpus = Vec<(GpuUuid, Vec<u32>)>;

/// Makes the changes if the GPUs allow them, or those on the GPUs that do. Returns the GPUs that keep it from that.
fn attempt(
    context: &LeaseContext<'_>,
    goal: Goal<'_>,
    options: ApplyOptions,
    leaves: Leaves,
) -> Result<(Applied, HeldGpus)> {
    if !options.dry_run {
        reclaim::collect(context, false)?;
    }
    let mut attempt = Attempt {
        context,
        goal,
        options,
        leaves,
        with_mig: BTreeSet::new(),
        in_use: InUse::default(),
        operation: None,
        holds: Holds::default(),
    };
    let mut driver = context.driver();
    driver.prepare()?;
    let done = attempt.run(&mut driver);
    // A collector ends what a failure leaves.
    let ended = attempt.holds.end(context);
    match done {
        Ok(done) => ended.map(|()| done),
        Err(e) => Err(e.and(ended.err())),
    }
}

struct Attempt<'a> {
    context: &'a LeaseContext<'a>,
    goal: Goal<'a>,
    options: ApplyOptions,
    leaves: Leaves,
    /// The GPUs whose MIG mode the driver has told.
    with_mig: BTreeSet<GpuUuid>,
    in_use: InUse,
    /// The operation that is at work. Without changes there is none.
    operation: Option<Operation>,
    /// The GPUs with a new MIG mode, until their instances are on record.
    holds: Holds,
}

/// The plans of one look.
struct Looked {
    states: Vec<GpuState>,
    plans: Vec<Plan>,
}

impl Attempt<'_> {
    fn run(&mut self, driver: &mut Metered<'_>) -> Result<(Applied, HeldGpus)> {
        // The changes as a whole, once the modes are set and the instances come.
        let mut begun: Option<Applied> = None;
        for _ in 0..MAX_TRIES {
            // A look at the processes of the machine takes its time, so no create waits for it.
            let Some(Looked { states, plans }) = self.look(driver)? else {
                continue;
            };
            let in_use = &mut self.in_use;
            if in_use.look_at(self.context, driver, &states, &plans)? {
                continue;
            }
            let held = held_gpus(&states, &plans);
            if self.options.dry_run || !(self.leaves.held || held.is_empty()) {
                let applied = Applied::new(self.goal.name(), (&states, &plans), Made::Nothing);
                return Ok((whole(begun, applied), held));
            }
            let Some((journaled, holds, applied)) = self.journal(driver)? else {
                continue;
            };
            std::mem::replace(&mut self.holds, holds).end(self.context)?;
            finish(self.context, driver, journaled)?;
            let applied = whole(begun.take(), applied);
            if let Some(operation) = self.operation.as_ref().filter(|_| !self.holds.is_empty()) {
                let may_reset = !self.options.skip_reset;
                self.holds
                    .set_modes(self.context, driver, may_reset.then_some(operation))?;
                // A new instance may have the id of one that is gone.
                self.in_use = InUse::default();
                begun = Some(applied);
                continue;
            }
            let name = self.goal.name();
            if !self.options.modes_only && applied.obstacles.is_empty() {
                self.context.observer.applied(name);
                tracing::info!("layout {name} is applied");
            }
            return Ok((applied, HeldGpus::new()));
        }
        Err(
            Error::new("the instances on the GPUs are changed all the time").hint(
                "try again once fewer containers come and go; migctl events --follow shows them",
            ),
        )
    }

    /// Looks at driver and ledger, and plans. Returns none if an instance ended meanwhile.
    fn look(&mut self, driver: &Metered<'_>) -> Result<Option<Looked>> {
        let Some((gpus, listing)) = look::read(self.context, driver)? else {
            return Ok(None);
        };
        // A GPU without MIG has a layout with MIG off, so an answer that cannot be true must not end the apply.
        for gpu in gpus.iter().map(|gpu| &gpu.gpu) {
            if gpu.mig != MigMode::Unsupported {
                self.with_mig.insert(gpu.uuid.clone());
            } else if self.with_mig.contains(&gpu.uuid) {
                let index = gpu.index;
                let why = format!("the driver now says that GPU {index} has no MIG mode");
                return Err(Error::new(why).hint("apply again"));
            }
        }
        let own = self.operation.as_ref().map(Operation::id);
        let states = look::look(self.context, (gpus, listing), &self.in_use, own);
        let mut plans = plan::plan(self.goal, self.options.modes_only, &states)?;
        if !self.holds.is_empty() {
            // All other GPUs have the goal, as far as they allow it.
            let both = states.iter().zip(&mut plans);
            let others = both.filter(|(state, _)| !self.holds.has(&state.gpu.gpu.uuid));
            others.for_each(|(_, plan)| *plan = Plan::default());
        }
        let mut refusals = plans.iter_mut().map(|plan| &mut plan.refusal);
        match refusals.find_map(|refusal| refusal.take_if(|_| !self.leaves.refused)) {
            Some(refusal) => Err(refusal),
            None => Ok(Some(Looked { states, plans })),
        }
    }

    /// Looks again and puts the changes on record, while no create chooses a place. Returns none if the plan has changed.
    fn journal(&mut self, driver: &Metered<'_>) -> Result<Option<(Journaled, Holds, Applied)>> {
        let context = self.context;
        if self.operation.is_none() {
            self.operation = Some(context.store.begin()?);
        }
        let goal = self.goal;
        let name = goal.name();
        let _plan = context
            .store
            .lock_plan(&format!("apply of layout {name}"))?;
        let Some(Looked { states, plans }) = self.look(driver)? else {
            return Ok(None);
        };
        let allows = self.leaves.held || held_gpus(&states, &plans).is_empty();
        let applied = Applied::new(name, (&states, &plans), Made::All);
        let allowed: Vec<Plan> = plans.into_iter().map(Plan::or_skip).collect();
        let operation = self.operation.as_ref();
        let Some(operation) = operation.filter(|_| allows && self.in_use.knows(&states, &allowed))
        else {
            return Ok(None);
        };
        let about = (name, operation);
        let holds = Holds::draft(context, about, (&states, &allowed))?;
        let journaled = journal::write(context, driver, about, (&states, &allowed), &holds)?;
        Ok(journaled.map(|journaled| (journaled, holds, applied)))
    }
}

fn whole(begun: Option<Applied>, now: Applied) -> Applied {
    match begun {
        Some(begun) => begun.and_then(now),
        None => now,
    }
}

fn held_gpus(states: &[GpuState], plans: &[Plan]) -> HeldGpus {
    let both = states.iter().zip(plans);
    both.filter(|(_, plan)| plan.is_held())
        .map(|(state, plan)| {
            // A request for a whole GPU is kept off by an entry without profiles.
            let offers = state.gpu.offers.iter().filter(|_| plan.mode != Some(true));
            let profiles = offers.map(|offer| offer.profile.id);
            (state.gpu.gpu.uuid.clone(), profiles.collect())
        })
        .collect()
}

fn finish(context: &LeaseContext<'_>, driver: &impl Mig, journaled: Journaled) -> Result<()> {
    let mut left = journaled.0;
    carry::carry_out(context, driver, &mut left)
        .map_err(|e| e.and(journal::withdraw(context, left).err()))
}
