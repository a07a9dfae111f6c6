//! Brings GPUs to a layout: destroys what it does not want, creates what is missing, and leaves every lease alone.
//!
//! `look` reads driver and ledger, `plan` decides, `journal` puts the changes on record, `carry` makes them, and `wait` waits
//! for leases that are in the way. A kill leaves instances that are whole, or records that a collector or the next apply ends.

mod carry;
mod journal;
mod look;
mod outcome;
mod plan;
mod wait;

pub use outcome::{Applied, Change, PlannedInstance};

use crate::context::LeaseContext;
use crate::error::{Error, Result};
use crate::gpu::{Mig, Queries};
use crate::layout::{Checkpoint, Configuration};
use crate::model::GpuUuid;
use crate::observer::News;
use crate::reclaim;
use journal::Journaled;
use look::{GpuState, InUse};
use plan::Plan;
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
    /// Looks at the MIG modes alone.
    pub modes_only: bool,
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
    let driver = context.driver();
    driver.prepare()?;
    let look = |in_use: &InUse| -> Result<(Vec<GpuState>, Vec<Plan>)> {
        let states = look::look(context, driver.detailed_gpus()?, in_use)?;
        let mut plans = plan::plan(goal, options.modes_only, &states)?;
        let mut refusals = plans.iter_mut().map(|plan| &mut plan.refusal);
        match refusals.find_map(|refusal| refusal.take_if(|_| !leaves.refused)) {
            Some(refusal) => Err(refusal),
            None => Ok((states, plans)),
        }
    };
    let mut in_use = InUse::default();
    for _ in 0..MAX_TRIES {
        // A look at the processes of the machine takes its time, so no create waits for it.
        let (states, plans) = look(&in_use)?;
        if in_use.look_at(context, &driver, &states, &plans)? {
            continue;
        }
        let held = held_gpus(&states, &plans);
        if options.dry_run || !(leaves.held || held.is_empty()) {
            let applied = Applied::new(goal.name(), (&states, &plans), false);
            return Ok((applied, held));
        }
        let operation = context.store.begin()?;
        let journaled = {
            let why = format!("apply of layout {}", goal.name());
            let _plan = context.store.lock_plan(&why)?;
            let (states, plans) = look(&in_use)?;
            let allows = leaves.held || held_gpus(&states, &plans).is_empty();
            let applied = Applied::new(goal.name(), (&states, &plans), true);
            let allowed: Vec<Plan> = plans.into_iter().map(Plan::or_skip).collect();
            match allows && in_use.knows(&states, &allowed) {
                true => {
                    let about = (goal.name(), &operation);
                    journal::write(context, &driver, about, (&states, &allowed))?
                        .map(|journaled| (journaled, applied))
                }
                false => None,
            }
        };
        let Some((journaled, applied)) = journaled else {
            continue;
        };
        finish(context, &driver, journaled)?;
        let name = goal.name();
        if !options.modes_only && applied.obstacles.is_empty() {
            context.observer.tell(&News::LayoutApplied(name));
            tracing::info!("layout {name} is applied");
        }
        return Ok((applied, HeldGpus::new()));
    }
    Err(
        Error::new("the instances on the GPUs are changed all the time")
            .hint("try again once fewer containers come and go; migctl events --follow shows them"),
    )
}

fn held_gpus(states: &[GpuState], plans: &[Plan]) -> HeldGpus {
    let both = states.iter().zip(plans);
    both.filter(|(_, plan)| !plan.held.is_empty())
        .map(|(state, _)| {
            let profiles = state.gpu.offers.iter().map(|offer| offer.profile.id);
            (state.gpu.gpu.uuid.clone(), profiles.collect())
        })
        .collect()
}

fn finish(context: &LeaseContext<'_>, driver: &impl Mig, journaled: Journaled) -> Result<()> {
    let mut left = journaled.0;
    carry::carry_out(context, driver, &mut left)
        .map_err(|e| e.and(journal::withdraw(context, left).err()))
}
