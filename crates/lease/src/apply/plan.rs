//! From the state of each GPU and the layout to the changes. Pure.

use super::occupants::{GpuState, Present};
use crate::error::{Context, Error, Result};
use crate::layout::{self, Configuration, Entry};
use crate::model::{Gpu, GpuUuid, MigMode};
use crate::placement::{self, LayoutObstacle, LayoutPlan, Standing, WantedParts};

/// A GPU that the layout names, and the changes on it.
pub(super) struct GpuPlan {
    pub state: GpuState,
    /// The MIG mode to set. Instances that the plan creates come after it.
    pub mode: Option<bool>,
    /// The holders of the GPU as a whole that are in the way: leases, processes and another apply.
    pub busy: Vec<String>,
    /// The changes of its instances.
    pub changes: LayoutPlan,
}

impl GpuPlan {
    pub(super) fn index(&self) -> u32 {
        self.state.gpu.gpu.index
    }

    pub(super) fn uuid(&self) -> &GpuUuid {
        &self.state.gpu.gpu.uuid
    }

    /// Returns the instances that go.
    pub(super) fn doomed(&self) -> impl Iterator<Item = &Present> {
        self.changes.destroy.iter().map(|n| &self.state.present[*n])
    }

    /// Returns those of them that leases or processes hold.
    pub(super) fn held(&self) -> impl Iterator<Item = &Present> {
        self.doomed().filter(|present| !present.holders.is_empty())
    }

    /// Returns whether leases or processes are in the way.
    pub(super) fn is_held(&self) -> bool {
        !self.busy.is_empty() || self.held().next().is_some()
    }
}

/// Returns the changes on each GPU that the layout names.
///
/// # Errors
/// A layout that is wrong for the machine, or that a GPU cannot have, whatever ends.
pub(super) fn plan(layout: &Configuration, states: Vec<GpuState>) -> Result<Vec<GpuPlan>> {
    let gpus: Vec<_> = states.iter().map(|state| state.gpu.clone()).collect();
    let targets = layout::resolve(layout, &gpus)?;
    layout::validate(&targets, &gpus)?;
    let named = states.into_iter().zip(&targets);
    let named = named.filter_map(|(state, target)| Some((state, (*target)?)));
    let one = |(state, target): (GpuState, &Entry)| {
        let what = format!("make the layout of GPU {}", state.gpu.gpu.index);
        on_gpu(state, target).context(|| what)
    };
    named.map(one).collect()
}

fn on_gpu(state: GpuState, target: &Entry) -> Result<GpuPlan> {
    let wanted = layout::wanted_parts(target, &state.gpu);
    let mut plan = GpuPlan {
        state,
        mode: None,
        busy: Vec::new(),
        changes: LayoutPlan::default(),
    };
    let gpu = &plan.state.gpu.gpu;
    // The instances of now do not tell those after the change of another apply.
    if let Some(other) = &plan.state.changing {
        plan.busy.push(other.clone());
        return Ok(plan);
    }
    match (gpu.mig, target.mig_enabled) {
        (MigMode::Enabled, false) => {
            plan.mode = Some(false);
            plan.changes.destroy = (0..plan.state.present.len()).collect();
        }
        (MigMode::Enabled, true) if gpu.ends_mig() => {
            let hint = format!("keep MIG on: nvidia-smi -i {} -mig 1", gpu.index);
            return Err(Error::new("MIG is off after its next reset").hint(hint));
        }
        (MigMode::Enabled, true) => change_instances(&mut plan, &wanted)?,
        // `validate` has refused a GPU without MIG.
        (MigMode::Disabled | MigMode::Unsupported, true) => switch_on(&mut plan, &wanted)?,
        (MigMode::Disabled | MigMode::Unsupported, false) => {}
    }
    let changes = &plan.changes;
    if plan.mode.is_some() || !changes.destroy.is_empty() || !changes.create.is_empty() {
        plan.busy.extend(plan.state.holders.iter().cloned());
    }
    Ok(plan)
}

/// Plans a GPU whose MIG mode has to be on: it has no instances yet.
fn switch_on(plan: &mut GpuPlan, wanted: &WantedParts) -> Result<()> {
    let state = &plan.state;
    let offers = state.gpu.offers.iter();
    let empty = Gpu {
        mig: MigMode::Enabled,
        profiles: offers.map(|offer| offer.profile.clone()).collect(),
        ..state.gpu.gpu.clone()
    };
    plan.changes = placement::plan_layout(&empty, &[], wanted).map_err(impossible)?;
    plan.mode = Some(true);
    // A lease on a slice outlives a mode that was switched off under it.
    let left = state.present.iter().flat_map(|present| &present.holders);
    plan.busy = state.processes.iter().chain(left).cloned().collect();
    Ok(())
}

/// Plans a GPU in MIG mode.
fn change_instances(plan: &mut GpuPlan, wanted: &WantedParts) -> Result<()> {
    let state = &plan.state;
    // An instance that is on its way out cannot stay.
    let (staying, going): (Vec<usize>, Vec<usize>) =
        (0..state.present.len()).partition(|n| !state.present[*n].is_going);
    let standing: Vec<Standing> = { staying.iter() }
        .map(|n| state.present[*n].standing(&state.gpu))
        .collect();
    let found = match placement::plan_layout(&state.gpu.gpu, &standing, wanted) {
        Ok(found) | Err(LayoutObstacle::Held(found)) => found,
        Err(other) => return Err(impossible(other)),
    };
    let destroy = found.destroy.iter().map(|n| staying[*n]);
    plan.changes = LayoutPlan {
        keep: found.keep.iter().map(|n| staying[*n]).collect(),
        destroy: destroy.chain(going).collect(),
        create: found.create,
    };
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_makes_a_layout_impossible() {
        for (obstacle, why) in [
            (
                LayoutObstacle::Unknown,
                "the places cannot be found in time; hint: destroy idle slices",
            ),
            (
                LayoutObstacle::NoFit,
                "its instances cannot exist together; hint: want fewer",
            ),
        ] {
            let line = impossible(obstacle).line();
            assert!(line.starts_with(why), "{line}");
        }
    }
}
