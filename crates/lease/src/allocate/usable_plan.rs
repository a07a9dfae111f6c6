//! Plans in which each instance of an administrator is usable, by the driver's word.

use super::admit::{Limits, Machine};
use super::found::{Denial, Step};
use super::plan::{Plan, Planner};
use super::requester::Tried;
use crate::draft::slot_of;
use crate::error::Result;
use crate::gpu::Queries;
use crate::model::{ComputeInstance, GpuUuid};
use crate::placement::Admitted;
use crate::placement::{self, Constraints, Reservation, Slot};
use crate::policy::Policy;
use crate::store::Slice;

/// Plans until each instance of an administrator in the plan is usable.
pub(super) fn usable_plan(
    machine: &Machine<'_, impl Queries>,
    wanted: &Constraints<'_>,
    limits: &Limits<'_>,
    tried: &mut Tried,
    plan: impl Fn(&Planner<'_>) -> Result<Plan, Denial>,
) -> Result<Plan, Denial> {
    loop {
        let mut planned = plan(&Planner {
            inventory: machine.inventory,
            wanted,
            limits,
            tried,
            adopts: machine.config.adopt,
        })?;
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

/// Returns profile ids by GPU. A request does not wait for a slice that its limits would not leave it if it
/// held nothing, nor for one that no empty machine has. `policy`: that of the machine, or a part of it.
pub(super) fn could_use(
    machine: &Machine<'_, impl Queries>,
    policy: &Policy,
    admitted: &Admitted,
) -> Vec<(GpuUuid, Vec<u32>)> {
    let snapshot = &machine.inventory.snapshot;
    let limits = Limits::without_usage(policy, machine.subject.clone());
    let mut all: Vec<(GpuUuid, Vec<u32>)> = Vec::new();
    let each = admitted.alternatives.iter();
    for (asked, slice) in each.flat_map(|asked| asked.all().map(move |slice| (asked, slice))) {
        let wanted = admitted.wanted().of(slice);
        let excluded = limits.excluded(snapshot, asked, &wanted);
        let wanted = Constraints {
            excluded: &excluded,
            ..wanted
        };
        if placement::never_several(snapshot, asked, &wanted).is_some() {
            continue;
        }
        for Reservation { gpu, profile_id } in placement::could_use(snapshot, &wanted) {
            match all.iter_mut().find(|(other, _)| *other == gpu) {
                Some((_, profiles)) if profiles.contains(&profile_id) => {}
                Some((_, profiles)) => profiles.push(profile_id),
                None => all.push((gpu, vec![profile_id])),
            }
        }
    }
    all
}
