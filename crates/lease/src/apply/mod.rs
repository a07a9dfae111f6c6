//! Brings GPUs to a layout: destroys what it does not want, creates what is missing, and leaves every lease alone.
//!
//! `look` reads driver and ledger, `plan` decides, `journal` puts the changes on record, and `carry` makes them. A kill
//! leaves instances that are whole, or records that a collector or the next apply ends.

mod carry;
mod journal;
mod look;
mod outcome;
mod plan;

pub use outcome::{Applied, Change, PlannedInstance};

use crate::context::LeaseContext;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::layout::{Checkpoint, Configuration};
use crate::observer::News;
use crate::reclaim;
use journal::Journaled;
use look::{GpuState, InUse};
use plan::Plan;

/// How often the machine may change under the eyes of an apply.
const MAX_TRIES: usize = 16;

/// The state to reach.
#[derive(Clone, Copy)]
pub enum Goal<'a> {
    /// A configuration of a file.
    Layout(&'a Configuration),
    /// The MIG modes of a configuration alone.
    Modes(&'a Configuration),
    /// The state in a checkpoint, to the place.
    Checkpoint(&'a Checkpoint),
    /// The MIG modes of a checkpoint alone.
    CheckpointModes(&'a Checkpoint),
}

impl Goal<'_> {
    /// Returns the name of the layout on record.
    fn name(&self) -> &str {
        match self {
            Goal::Layout(configuration) | Goal::Modes(configuration) => &configuration.name,
            Goal::Checkpoint(_) | Goal::CheckpointModes(_) => "checkpoint",
        }
    }
}

/// Brings the GPUs to a goal. `dry_run` changes nothing and tells the plan.
///
/// # Errors
/// The goal cannot be reached, or only by the end of a lease or process: then nothing has changed. A failed call of the
/// driver: then the changes before it stay, and the next apply completes them.
pub(crate) fn apply(context: &LeaseContext<'_>, goal: Goal<'_>, dry_run: bool) -> Result<Applied> {
    if !dry_run {
        reclaim::collect(context, false)?;
    }
    let driver = context.driver();
    driver.prepare()?;
    let look = |in_use: &InUse| -> Result<(Vec<GpuState>, Vec<Plan>)> {
        let states = look::look(context, driver.detailed_gpus()?, in_use)?;
        let plans = plan::plan(goal, &states)?;
        Ok((states, plans))
    };
    let mut in_use = InUse::default();
    for _ in 0..MAX_TRIES {
        // A look at the processes of the machine takes its time, so no create waits for it.
        let (states, plans) = look(&in_use)?;
        if in_use.look_at(context, &driver, &states, &plans)? {
            continue;
        }
        let applied = Applied::new(goal.name(), &states, &plans);
        if dry_run || applied.obstacle.is_some() {
            return Ok(applied);
        }
        let operation = context.store.begin()?;
        let journaled = {
            let why = format!("apply of layout {}", goal.name());
            let _plan = context.store.lock_plan(&why)?;
            let (states, plans) = look(&in_use)?;
            match in_use.knows(&states, &plans) && !plans.iter().any(Plan::is_blocked) {
                true => {
                    let applied = Applied::new(goal.name(), &states, &plans);
                    let about = (goal.name(), &operation);
                    journal::write(context, &driver, about, (&states, &plans))?
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
        context.observer.tell(&News::LayoutApplied(name));
        tracing::info!("layout {name} is applied");
        return Ok(applied);
    }
    Err(
        Error::new("the instances on the GPUs are changed all the time")
            .hint("try again once fewer containers come and go; migctl events --follow shows them"),
    )
}

fn finish(
    context: &LeaseContext<'_>,
    driver: &impl crate::gpu::Mig,
    journaled: Journaled,
) -> Result<()> {
    let mut left = journaled.0;
    let done = carry::carry_out(context, driver, &mut left);
    match done {
        Ok(()) => Ok(()),
        Err(e) => Err(e.and(journal::withdraw(context, left).err())),
    }
}
