//! Plans in which each instance of an administrator is usable, by the driver's word.

use super::admit::{Limits, Machine};
use super::found::{Denial, Step};
use super::plan::{Plan, Planner};
use super::requester::Tried;
use crate::draft::slot_of;
use crate::error::Result;
use crate::gpu::Queries;
use crate::model::{ComputeInstance, Snapshot};
use crate::placement::{self, Constraints, Reservation, Slot};
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
    let Some(gi) = slice.gpu_instance else {
        return Ok(None);
    };
    let gpu = &slice.gpu_uuid;
    let listed = driver.instances_of(gpu, slice.profile_id)?;
    let instance = listed.into_iter().find(|i| i.id == gi);
    let cis: Vec<ComputeInstance> = instance.map_or(Vec::new(), |i| i.compute_instances);
    let [only] = cis.as_slice() else {
        return Ok(None);
    };
    let is_usable =
        driver.is_filled_by(gpu, gi, only)? && driver.processes(gpu, gi, only.id)?.is_empty();
    Ok(is_usable.then_some(only.id))
}

/// Returns what one alternative of a request could use. A request does not wait for a slice that its limits would not leave
/// it if it held nothing, nor for one that no empty machine has. `limits`: those of a subject that holds nothing.
pub(super) fn could_use(
    snapshot: &Snapshot,
    limits: &Limits<'_>,
    asked: &Alternative,
    wanted: &Constraints<'_>,
) -> Vec<Reservation> {
    let of_slice = |slice| {
        let wanted = wanted.of(slice);
        let excluded = limits.excluded(snapshot, asked, &wanted);
        let wanted = Constraints {
            excluded: &excluded,
            ..wanted
        };
        match placement::never_several(snapshot, asked, &wanted) {
            Some(_) => Vec::new(),
            None => placement::could_use(snapshot, &wanted),
        }
    };
    asked.all().flat_map(of_slice).collect()
}
