//! Puts the changes of an apply on record before they begin, and takes back those that never began.

use super::modes::Holds;
use super::occupants::Present;
use super::plan::GpuPlan;
use crate::draft;
use crate::error::{Error, Result};
use crate::gpu::{DetailedGpu, Queries};
use crate::leases::Leases;
use crate::store::{
    Instance, InstanceState, LeaseState, Operation, Origin, Resource, Slice, State,
};
use std::collections::VecDeque;

/// A record to write for the layout, and what to do with its instance.
pub(super) struct Step {
    /// The record.
    pub instance: Instance,
    /// The record before the apply. None for an instance that was not on record.
    before: Option<Instance>,
    pub change: Change,
}

/// What an apply does to an instance.
pub(super) enum Change {
    /// Nothing: only its record is new.
    Keep,
    Destroy,
    /// Creates it with its compute instances.
    Create {
        /// The compute slices of each compute instance.
        parts: Vec<u32>,
        /// Whether the only one fills the instance, by any profile that does.
        is_whole: bool,
    },
}

/// Puts the changes on record. Returns those to make, in their order, or none if a record changed since the look.
pub(super) fn write(
    context: &Leases<'_>,
    driver: &impl Queries,
    name: &str,
    operation: &Operation,
    gpus: &[GpuPlan],
    holds: &Holds,
) -> Result<Option<VecDeque<Step>>> {
    let draft = Draft {
        driver,
        name,
        operation,
    };
    let mut steps = VecDeque::new();
    for gpu in gpus {
        draft.of_gpu(gpu, &mut steps)?;
    }
    let ledger = context.store.lock(&format!("apply of layout {name}"))?;
    let written = ledger.change(|state| {
        let is_same = |before: &Instance| state.instance(&before.id).map(|i| &**i) == Some(before);
        let mut before = steps.iter().filter_map(|step| step.before.as_ref());
        if !before.all(is_same) || !keep_their_leases(state, &steps) {
            return Ok(false);
        }
        let new = steps.iter().map(|step| &step.instance);
        for instance in new.chain(holds.records()) {
            state.put_instance(instance.clone())?;
        }
        Ok(true)
    })?;
    steps.retain(|step| !matches!(step.change, Change::Keep));
    Ok(written.then_some(steps))
}

/// Returns whether no release of the leases on these records has begun since the look: it may destroy an instance that is
/// to stay. A release that begins later sees the new record.
fn keep_their_leases(state: &State, steps: &VecDeque<Step>) -> bool {
    let is_ending = |step: &Step| {
        let mut leases = { state.leases.iter() }
            .filter(|lease| lease.instance == step.instance.id)
            .map(|lease| lease.state);
        let first = leases.next();
        first == Some(LeaseState::Releasing) && leases.all(|state| state == LeaseState::Releasing)
    };
    !steps.iter().any(is_ending)
}

struct Draft<'a, D> {
    driver: &'a D,
    name: &'a str,
    operation: &'a Operation,
}

impl<D: Queries> Draft<'_, D> {
    fn of_gpu(&self, plan: &GpuPlan, steps: &mut VecDeque<Step>) -> Result<()> {
        let state = &plan.state;
        for present in plan.doomed() {
            let mut instance = self.instance(&state.gpu, present, InstanceState::Releasing)?;
            instance.operation = Some(self.operation.id().clone());
            steps.push_back(Step {
                instance,
                before: present.record.clone(),
                change: Change::Destroy,
            });
        }
        for present in plan.changes.keep.iter().map(|n| &state.present[*n]) {
            if !is_marked(present) {
                continue;
            }
            let instance = self.instance(&state.gpu, present, InstanceState::Ready)?;
            let before = present.record.clone();
            if before.as_ref() != Some(&instance) {
                steps.push_back(Step {
                    instance,
                    before,
                    change: Change::Keep,
                });
            }
        }
        if plan.mode.is_some() {
            // The new ones come once the mode is set.
            return Ok(());
        }
        for new in &plan.changes.create {
            let none = || Error::new("the GPU has no such profile");
            let profile = state.gpu.offered(new.profile_id).ok_or_else(none)?;
            let slice = Slice::planned(&state.gpu.gpu, profile, new.placement);
            let mut instance = self.draft(slice, InstanceState::Creating)?;
            instance.operation = Some(self.operation.id().clone());
            instance.planned = true;
            steps.push_back(Step {
                instance,
                before: None,
                change: Change::Create {
                    parts: new.parts.clone(),
                    is_whole: new.parts == [profile.compute_slices],
                },
            });
        }
        Ok(())
    }

    fn draft(&self, slice: Slice, state: InstanceState) -> Result<Instance> {
        let mut instance = draft::instance(Resource::Mig(slice), Origin::Administrator, state)?;
        instance.layout = Some(self.name.to_owned());
        Ok(instance)
    }

    /// Returns the record of an instance that is there, for this layout.
    fn instance(
        &self,
        gpu: &DetailedGpu,
        present: &Present,
        state: InstanceState,
    ) -> Result<Instance> {
        if let Some(record) = &present.record {
            return Ok(Instance {
                state,
                layout: Some(self.name.to_owned()),
                operation: None,
                ..record.clone()
            });
        }
        let unknown = || Error::new("the driver has an instance whose profile is unknown");
        let mut slice = present.slice(gpu).ok_or_else(unknown)?;
        // A collector after a kill finds the instance by the UUID of one device too.
        if let ([ci], Some(id)) = (present.compute.as_slice(), present.id) {
            let uuid = &gpu.gpu.uuid;
            slice.mig_uuid = Some(self.driver.mig_uuid(uuid, id, ci.id)?);
        }
        self.draft(slice, state)
    }
}

/// Returns whether an instance that stays is put on record for the layout. One that is promised, being made or in seats
/// ends as it would without a layout.
fn is_marked(present: &Present) -> bool {
    if present.id.is_none() || present.is_unread || present.has_seats {
        return false;
    }
    let Some(record) = &present.record else {
        return true;
    };
    match record.state {
        InstanceState::Ready => true,
        // One with a lease is being handed out, and not validated yet.
        InstanceState::Idle { .. } => present.holders.is_empty(),
        InstanceState::Creating | InstanceState::Releasing | InstanceState::Quarantined(_) => false,
    }
}

/// Takes back the changes that were not made. The first of them may have begun: then its record stays as it is, and a
/// collector ends it.
pub(super) fn withdraw(context: &Leases<'_>, left: VecDeque<Step>) -> Result<()> {
    context.store.lock("apply")?.change(|state| {
        for (n, step) in left.into_iter().enumerate() {
            let has_begun = match step.change {
                Change::Create { .. } => n == 0,
                // A compute instance of a changed one is gone, so a collector ends it.
                _ => state.instance(&step.instance.id).map(|i| &**i) != Some(&step.instance),
            };
            match step.before {
                _ if has_begun => {}
                Some(before) => state.put_instance(before)?,
                None => drop(state.remove_instance(&step.instance.id)),
            }
        }
        Ok(())
    })
}
