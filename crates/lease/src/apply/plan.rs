//! From the state of each GPU and the goal to the changes. Pure.

use super::Goal;
use super::look::GpuState;
use crate::error::{Context, Error, Result};
use crate::layout;
use crate::model::{Gpu, MigMode};
use crate::placement::{self, LayoutObstacle, LayoutPlan, Missing, NewInstance, Standing};

/// The changes on one GPU.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Whether the goal says something about the GPU.
    pub is_named: bool,
    /// The MIG mode to set. Instances that the plan creates come after it.
    pub mode: Option<bool>,
    /// The holders of the GPU as a whole that are in the way: leases, processes and another apply.
    pub busy: Vec<String>,
    /// The instances that stay, by their position, with the compute instances that each lacks.
    pub keep: Missing,
    /// The instances that go, by their position.
    pub destroy: Vec<usize>,
    /// The new instances.
    pub create: Vec<NewInstance>,
    /// Those of `destroy` that leases or processes hold.
    pub held: Vec<usize>,
    /// The reason for which the GPU cannot have the goal, whatever ends.
    pub refusal: Option<Error>,
}

impl Plan {
    /// Returns whether the GPU does not allow the changes.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_held() || self.refusal.is_some()
    }

    /// Returns whether leases or processes are in the way.
    pub(super) fn is_held(&self) -> bool {
        !(self.held.is_empty() && self.busy.is_empty())
    }

    /// Adds the holders of the GPU as a whole that are in the way.
    fn beside(mut self, state: &GpuState) -> Plan {
        let grows = self.keep.values().any(|missing| !missing.is_empty());
        let is_same = self.mode.is_none() && self.destroy.is_empty() && self.create.is_empty();
        if grows || !is_same {
            self.busy.extend(state.holders.iter().cloned());
        }
        self
    }

    /// Leaves the GPU out if it does not allow the changes.
    pub(super) fn or_skip(self) -> Plan {
        match self.is_blocked() {
            true => Plan::default(),
            false => self,
        }
    }
}

/// Returns the changes on each GPU, or the reason for which it cannot have the goal.
///
/// # Errors
/// A goal that is wrong for the machine.
pub(super) fn plan(goal: Goal<'_>, modes_only: bool, states: &[GpuState]) -> Result<Vec<Plan>> {
    let gpus: Vec<_> = states.iter().map(|state| state.gpu.clone()).collect();
    Ok(match goal {
        Goal::Layout(configuration) => {
            let targets = layout::resolve(configuration, &gpus)?;
            if !modes_only {
                layout::validate(&targets, &gpus)?;
            }
            each(states, &targets, |state, target| {
                let wanted = layout::wanted_parts(target, &state.gpu);
                let plan = |gpu: &Gpu, standing: &[Standing]| {
                    placement::plan_layout(gpu, standing, &wanted)
                };
                to_mode(state, (target.mig_enabled, modes_only), plan)
            })
        }
        Goal::Checkpoint(checkpoint) => {
            let targets = layout::resolve_checkpoint(checkpoint, &gpus)?;
            each(states, &targets, |state, target| {
                let plan = |gpu: &Gpu, standing: &[Standing]| {
                    placement::plan_places(gpu, standing, &target.instances)
                };
                to_mode(state, (target.mig_enabled, modes_only), plan)
            })
        }
    })
}

/// Returns the plan of each GPU; an empty one for a GPU without a target.
fn each<T>(
    states: &[GpuState],
    targets: &[Option<T>],
    plan: impl Fn(&GpuState, &T) -> Result<Plan>,
) -> Vec<Plan> {
    let one = |(state, target): (&GpuState, &Option<T>)| match target {
        // The instances of now do not tell those after the change.
        Some(_) if state.changing.is_some() => Plan {
            is_named: true,
            busy: state.changing.iter().cloned().collect(),
            ..Plan::default()
        },
        Some(target) => plan(state, target)
            .map(|plan| plan.beside(state))
            .context(|| what(state))
            .unwrap_or_else(|e| Plan {
                is_named: true,
                refusal: Some(e),
                ..Plan::default()
            }),
        None => Plan::default(),
    };
    states.iter().zip(targets).map(one).collect()
}

fn what(state: &GpuState) -> String {
    format!("make the layout of GPU {}", state.gpu.gpu.index)
}

/// Returns the plan of a GPU with the mode that it is to have, and with its instances unless only modes count.
fn to_mode(
    state: &GpuState,
    (wanted, modes_only): (bool, bool),
    plan: impl FnOnce(&Gpu, &[Standing]) -> Result<LayoutPlan, LayoutObstacle>,
) -> Result<Plan> {
    match (state.gpu.gpu.mig, wanted) {
        (MigMode::Enabled, false) => Ok(switched_off(state)),
        (MigMode::Enabled, true) if state.gpu.gpu.ends_mig() => {
            let index = state.gpu.gpu.index;
            Err(Error::new("MIG is off after its next reset")
                .hint(format!("keep MIG on: nvidia-smi -i {index} -mig 1")))
        }
        (MigMode::Disabled, true) if modes_only => {
            switched_on(state, |_| Ok(LayoutPlan::default()))
        }
        (MigMode::Disabled, true) => switched_on(state, |gpu| plan(gpu, &[])),
        (MigMode::Unsupported, true) => {
            Err(Error::new(format!("{} has no MIG", state.gpu.gpu.name))
                .hint("leave the GPU out of the entry, or write mig-enabled: false"))
        }
        _ if modes_only => Ok(Plan {
            is_named: true,
            ..Plan::default()
        }),
        _ => on_gpu(state, |standing| plan(&state.gpu.gpu, standing)),
    }
}

/// Returns the plan of a GPU whose MIG mode is to be off: all instances go before it.
fn switched_off(state: &GpuState) -> Plan {
    let all: Vec<usize> = (0..state.present.len()).collect();
    Plan {
        is_named: true,
        mode: Some(false),
        held: held(state, &all),
        destroy: all,
        ..Plan::default()
    }
}

/// Returns the plan of a GPU whose MIG mode is to be on: it has no instances yet.
fn switched_on(
    state: &GpuState,
    plan: impl FnOnce(&Gpu) -> Result<LayoutPlan, LayoutObstacle>,
) -> Result<Plan> {
    let empty = Gpu {
        mig: MigMode::Enabled,
        profiles: { state.gpu.offers.iter() }
            .map(|offer| offer.profile.clone())
            .collect(),
        ..state.gpu.gpu.clone()
    };
    let plan = match plan(&empty) {
        Err(LayoutObstacle::Held(plan)) => Ok(plan),
        other => other,
    };
    // A lease on a slice outlives a mode that was switched off under it.
    let left = state.present.iter().flat_map(|present| &present.holders);
    let busy = state.processes.iter().chain(left);
    Ok(Plan {
        is_named: true,
        mode: Some(true),
        busy: busy.cloned().collect(),
        create: plan.map_err(impossible)?.create,
        ..Plan::default()
    })
}

/// Returns those of the instances that leases or processes hold.
fn held(state: &GpuState, destroy: &[usize]) -> Vec<usize> {
    let is_held = |n: &&usize| !state.present[**n].holders.is_empty();
    destroy.iter().filter(is_held).copied().collect()
}

fn impossible(obstacle: LayoutObstacle) -> Error {
    match obstacle {
        LayoutObstacle::Unknown => Error::new("the places cannot be found in time")
            .hint("destroy idle slices with migctl release, or apply a smaller layout first"),
        LayoutObstacle::NoFit | LayoutObstacle::Held(_) => {
            Error::new("its instances cannot exist together")
                .hint("want fewer instances, or smaller ones")
        }
    }
}

fn on_gpu(
    state: &GpuState,
    plan: impl FnOnce(&[Standing]) -> Result<LayoutPlan, LayoutObstacle>,
) -> Result<Plan> {
    if state.gpu.gpu.mig != MigMode::Enabled {
        return Ok(Plan {
            is_named: true,
            ..Plan::default()
        });
    }
    // An instance that is on its way out cannot stay.
    let staying: Vec<usize> = (0..state.present.len())
        .filter(|n| !state.present[*n].is_going)
        .collect();
    let standing: Vec<Standing> = { staying.iter() }
        .map(|n| state.present[*n].standing(&state.gpu))
        .collect();
    let (plan, is_blocked) = match plan(&standing) {
        Ok(plan) => (plan, false),
        Err(LayoutObstacle::Held(plan)) => (plan, true),
        Err(other) => return Err(impossible(other)),
    };
    let going = (0..state.present.len()).filter(|n| state.present[*n].is_going);
    let destroy: Vec<usize> = { plan.destroy.iter() }
        .map(|n| staying[*n])
        .chain(going)
        .collect();
    let held = held(state, &destroy);
    debug_assert!(!is_blocked || !held.is_empty());
    Ok(Plan {
        is_named: true,
        keep: { plan.keep.into_iter() }
            .map(|(n, missing)| (staying[n], missing))
            .collect(),
        create: plan.create,
        held,
        destroy,
        ..Plan::default()
    })
}
