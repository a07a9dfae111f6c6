//! From the state of each GPU and the goal to the changes. Pure.

use super::Goal;
use super::look::GpuState;
use crate::error::{Context, Error, Result};
use crate::layout;
use crate::model::MigMode;
use crate::placement::{self, LayoutObstacle, LayoutPlan, NewInstance, Standing};
use std::collections::BTreeMap;

/// The changes on one GPU.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Whether the goal says something about the GPU.
    pub is_named: bool,
    /// The instances that stay, by their position, with the compute instances that each lacks.
    pub keep: BTreeMap<usize, Vec<u32>>,
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
        !self.held.is_empty() || self.refusal.is_some()
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
                check_mode(state, target.mig_enabled)?;
                let wanted = layout::wanted_parts(target, &state.gpu);
                let plan = |standing: &[Standing]| {
                    placement::plan_layout(&state.gpu.gpu, standing, &wanted)
                };
                unless(modes_only, || on_gpu(state, plan))
            })
        }
        Goal::Checkpoint(checkpoint) => {
            let targets = layout::resolve_checkpoint(checkpoint, &gpus)?;
            each(states, &targets, |state, target| {
                check_mode(state, target.mig_enabled)?;
                let plan = |standing: &[Standing]| {
                    placement::plan_places(&state.gpu.gpu, standing, &target.instances)
                };
                unless(modes_only, || on_gpu(state, plan))
            })
        }
    })
}

fn unless(modes_only: bool, plan: impl FnOnce() -> Result<Plan>) -> Result<Plan> {
    match modes_only {
        true => Ok(Plan::default()),
        false => plan(),
    }
}

/// Returns the plan of each GPU; an empty one for a GPU without a target.
fn each<T>(
    states: &[GpuState],
    targets: &[Option<T>],
    plan: impl Fn(&GpuState, &T) -> Result<Plan>,
) -> Vec<Plan> {
    let one = |(state, target): (&GpuState, &Option<T>)| match target {
        Some(target) => plan(state, target)
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

/// Refuses a change of the MIG mode.
fn check_mode(state: &GpuState, wanted: bool) -> Result<()> {
    let gpu = &state.gpu.gpu;
    if wanted == (gpu.mig == MigMode::Enabled) {
        return Ok(());
    }
    let word = if wanted { "on" } else { "off" };
    let why = match state.holders.as_slice() {
        [] => format!("its MIG mode has to be {word}, and runmig does not change it"),
        holders => format!(
            "its MIG mode has to be {word}, and {} has the GPU",
            holders.join(", ")
        ),
    };
    let (index, number) = (gpu.index, u32::from(wanted));
    Err(Error::new(why).hint(format!(
        "once nothing uses GPU {index}, run nvidia-smi -i {index} -mig {number}; an Ampere GPU also needs nvidia-smi \
         --gpu-reset -i {index}"
    )))
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
        Err(LayoutObstacle::NoFit) => {
            return Err(Error::new("its instances cannot exist together")
                .hint("want fewer instances, or smaller ones"));
        }
        Err(LayoutObstacle::Unknown) => {
            return Err(Error::new("the places cannot be found in time")
                .hint("destroy idle slices with migctl release, or apply a smaller layout first"));
        }
    };
    let going = (0..state.present.len()).filter(|n| state.present[*n].is_going);
    let destroy: Vec<usize> = { plan.destroy.iter() }
        .map(|n| staying[*n])
        .chain(going)
        .collect();
    let is_held = |n: &&usize| !state.present[**n].holders.is_empty();
    let held: Vec<usize> = destroy.iter().filter(is_held).copied().collect();
    debug_assert!(!is_blocked || !held.is_empty());
    Ok(Plan {
        is_named: true,
        keep: { plan.keep.into_iter() }
            .map(|(n, missing)| (staying[n], missing))
            .collect(),
        create: plan.create,
        held,
        destroy,
        refusal: None,
    })
}
