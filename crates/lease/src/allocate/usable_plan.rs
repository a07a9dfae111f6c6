//! Plans in which each instance of an administrator is usable, by the driver's word.

use super::admit::Machine;
use super::found::{Denial, Step};
use super::plan::{Plan, Planner};
use super::requester::Tried;
use crate::draft::slot_of;
use crate::error::Result;
use crate::gpu::Queries;
use crate::placement::{Constraints, Slot};
use crate::reclaim;
use crate::request::Alternative;
use crate::store::Slice;

/// Plans the first alternative that can be had, until each instance of an administrator in the plan is usable.
pub(super) fn usable_plan(
    machine: &Machine<'_, impl Queries>,
    alternatives: &[Alternative],
    wanted: &Constraints<'_>,
    tried: &mut Tried,
) -> Result<Plan, Denial> {
    let limits = &machine.limits();
    loop {
        let planner = Planner {
            inventory: machine.inventory,
            wanted,
            limits,
            tried,
            adopts: machine.config.adopt,
        };
        let mut planned = planner.plan(alternatives)?;
        match complete(machine.driver, &mut planned.steps) {
            Ok(()) => return Ok(planned),
            Err(place) => tried.unusable.push(place),
        }
    }
}

/// Completes the steps that adopt an instance with its compute instance; an error with the place of the
/// first that cannot be handed out.
fn complete(driver: &impl Queries, steps: &mut [Step]) -> Result<(), Slot> {
    for step in steps {
        if let Step::Adopt(slice, _) = step {
            let ci = only_compute_instance(driver, slice).unwrap_or_else(|e| {
                tracing::warn!("not adopted: {}", e.line());
                None
            });
            slice.compute_instance = Some(ci.ok_or_else(|| slot_of(slice))?);
        }
    }
    Ok(())
}

/// Returns the compute instance that fills an instance; none where it has another, or is in use. The driver
/// answers this at once, under the plan's lock; processes that merely have the instance open are looked for
/// once a lease holds it.
fn only_compute_instance(driver: &impl Queries, slice: &Slice) -> Result<Option<u32>> {
    let Some(instance) = reclaim::locate(driver, slice)? else {
        return Ok(None);
    };
    let [only] = instance.compute_instances.as_slice() else {
        return Ok(None);
    };
    let (gpu, gi) = (&slice.gpu_uuid, instance.id);
    let is_usable = driver.is_filled_by(gpu, gi, only.profile_id)?
        && driver.processes(gpu, gi, only.id)?.is_empty();
    Ok(is_usable.then_some(only.id))
}
