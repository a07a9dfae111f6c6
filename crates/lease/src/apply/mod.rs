//! Brings GPUs to a layout: destroys what it does not want, creates what is missing, and leaves every lease alone.
//!
//! `occupants` reads driver and ledger, `in_use` the processes, `plan` decides, `journal` puts the changes on record, `carry`
//! makes them, `modes` switches MIG on and off, and `wait` waits for leases that are in the way. A kill leaves instances that
//! are whole, or records that a collector or the next apply ends.

mod carry;
mod in_use;
mod journal;
mod modes;
mod occupants;
mod outcome;
mod plan;
mod wait;

pub use outcome::{Applied, Made, PlannedInstance, PlannedMode};

use crate::error::{Error, Result};
use crate::gpu::{Queries, Session};
use crate::layout::Configuration;
use crate::leases::Leases;
use crate::model::{GpuUuid, MigMode};
use crate::reclaim;
use crate::store::Operation;
use in_use::InUse;
use journal::Step;
use modes::Holds;
use plan::GpuPlan;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use wait::Wait;

/// How often the machine may change under the eyes of an apply.
const MAX_TRIES: usize = 16;

/// The options of an apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyOptions {
    /// Leaves a GPU as it is whose new MIG mode waits for a reset.
    pub skip_reset: bool,
    /// Keeps the new MIG mode of a GPU that the machine cannot reset, for a reboot.
    pub keep_pending: bool,
    /// Changes nothing, and tells the plan.
    pub dry_run: bool,
    /// The time to wait for leases and processes that are in the way.
    pub wait: Duration,
}

/// The profiles of each GPU with leases or processes in the way.
type HeldGpus = Vec<(GpuUuid, Vec<u32>)>;

impl Leases<'_> {
    /// Brings the GPUs to a layout.
    ///
    /// # Errors
    /// The GPUs cannot have the layout: then nothing has changed. A failed call of the driver: then the changes before
    /// it stay, and the next apply completes them. Leases and processes that are in the way are
    /// in [`Applied::obstacles`].
    pub fn apply(&self, layout: &Configuration, options: ApplyOptions) -> Result<Applied> {
        if options.wait.is_zero() || options.dry_run {
            return attempt(self, layout, options).map(|(applied, _)| applied);
        }
        let mut turn = Wait::begin(self, &layout.name, options.wait)?;
        loop {
            let is_last = turn.is_over();
            let (applied, held) = attempt(self, layout, options)?;
            if held.is_empty() || is_last {
                return Ok(applied);
            }
            turn.wait(held)?;
        }
    }
}

/// Makes the changes if the GPUs allow them. Returns the GPUs that do not.
fn attempt(
    context: &Leases<'_>,
    layout: &Configuration,
    options: ApplyOptions,
) -> Result<(Applied, HeldGpus)> {
    if !options.dry_run {
        reclaim::collect(context)?;
    }
    let mut attempt = Attempt {
        context,
        layout,
        options,
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
    context: &'a Leases<'a>,
    layout: &'a Configuration,
    options: ApplyOptions,
    /// The GPUs whose MIG mode the driver has told.
    with_mig: BTreeSet<GpuUuid>,
    in_use: InUse,
    /// The operation that is at work. Without changes there is none.
    operation: Option<Operation>,
    /// The GPUs with a new MIG mode, until their instances are on record.
    holds: Holds,
}

impl Attempt<'_> {
    fn run(&mut self, driver: &mut Session<'_>) -> Result<(Applied, HeldGpus)> {
        let name = self.layout.name.as_str();
        // The changes as a whole, once the modes are set and the instances come.
        let mut begun: Option<Applied> = None;
        let whole = |begun: Option<Applied>, now| match begun {
            Some(begun) => begun.and_then(now),
            None => now,
        };
        for _ in 0..MAX_TRIES {
            // A look at the processes of the machine takes its time, so no create waits for it.
            let Some(gpus) = self.look(driver)? else {
                continue;
            };
            if self.in_use.look_at(self.context, driver, &gpus)? {
                continue;
            }
            let held = held_gpus(&gpus);
            if self.options.dry_run || !held.is_empty() {
                let applied = Applied::new(name, &gpus, Made::Nothing);
                return Ok((whole(begun, applied), held));
            }
            let Some((mut left, applied)) = self.journal(driver)? else {
                continue;
            };
            carry::carry_out(self.context, driver, &mut left)
                .map_err(|e| e.and(journal::withdraw(self.context, left).err()))?;
            let applied = whole(begun.take(), applied);
            let operation = self.operation.as_ref().filter(|_| !self.holds.is_empty());
            let Some(operation) = operation else {
                self.context.observer.applied(name);
                tracing::info!("layout {name} is applied");
                return Ok((applied, HeldGpus::new()));
            };
            let holds = &self.holds;
            holds.set_modes(self.context, driver, operation, self.options)?;
            // A new instance may have the id of one that is gone.
            self.in_use = InUse::default();
            begun = Some(applied);
        }
        Err(
            Error::new("the instances on the GPUs are changed all the time").hint(
                "try again once fewer containers come and go; migctl events --follow shows them",
            ),
        )
    }

    /// Looks at driver and ledger, and plans. Returns none if an instance ended meanwhile.
    fn look(&mut self, driver: &Session<'_>) -> Result<Option<Vec<GpuPlan>>> {
        let Some((gpus, listing)) = occupants::read(self.context, driver)? else {
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
        let states = occupants::look(self.context, gpus, listing, &self.in_use, own);
        let mut plans = plan::plan(self.layout, states)?;
        // All other GPUs have the layout.
        plans.retain(|gpu| self.holds.is_empty() || self.holds.has(gpu.uuid()));
        Ok(Some(plans))
    }

    /// Looks again and puts the changes on record, while no create chooses a place. Returns them with the whole plan, or none
    /// if that has changed.
    fn journal(&mut self, driver: &Session<'_>) -> Result<Option<(VecDeque<Step>, Applied)>> {
        let context = self.context;
        if self.operation.is_none() {
            self.operation = Some(context.store.begin()?);
        }
        let name = self.layout.name.as_str();
        let _plan = context
            .store
            .lock_plan(&format!("apply of layout {name}"))?;
        let Some(gpus) = self.look(driver)? else {
            return Ok(None);
        };
        let allows = held_gpus(&gpus).is_empty() && self.in_use.knows(&gpus);
        let Some(operation) = self.operation.as_ref().filter(|_| allows) else {
            return Ok(None);
        };
        let holds = Holds::draft(name, operation, &gpus)?;
        let written = journal::write(context, driver, name, operation, &gpus, &holds)?;
        let Some(steps) = written else {
            return Ok(None);
        };
        // The new instances are on record, so nothing has to hold their GPUs any more.
        std::mem::replace(&mut self.holds, holds).end(context)?;
        Ok(Some((steps, Applied::new(name, &gpus, Made::All))))
    }
}

fn held_gpus(gpus: &[GpuPlan]) -> HeldGpus {
    let held = gpus.iter().filter(|gpu| gpu.is_held());
    held.map(|gpu| {
        // A request for a whole GPU is kept off by an entry without profiles.
        let offers = gpu.state.gpu.offers.iter();
        let offers = offers.filter(|_| gpu.mode != Some(true));
        let profiles = offers.map(|offer| offer.profile.id);
        (gpu.uuid().clone(), profiles.collect())
    })
    .collect()
}
