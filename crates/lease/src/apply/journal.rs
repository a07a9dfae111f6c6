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

/// A change that is on record and has not been made.
pub(super) enum Step {
    /// Destroys an instance.
    Destroy {
        /// Its record.
        instance: Box<Instance>,
        /// The record before the apply. None for an instance that was not on record.
        before: Option<Box<Instance>>,
    },
    /// Creates an instance with its compute instances.
    Create {
        /// Its record.
        instance: Box<Instance>,
        /// The compute slices of each compute instance.
        parts: Vec<u32>,
        /// Whether the only one fills the instance, by any profile that does.
        is_whole: bool,
    },
}

/// A record to write, and the one that it replaces.
struct Entry {
    instance: Instance,
    before: Option<Instance>,
}

/// Puts the changes on record, in the order in which they are made. Returns none if a record changed since the look.
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
    let (mut records, mut steps) = (Vec::new(), VecDeque::new());
    for gpu in gpus {
        draft.of_gpu(gpu, &mut records, &mut steps)?;
    }
    let held = holds.records().map(|instance| Entry {
        instance: instance.clone(),
        before: None,
    });
    records.extend(held);
    let ledger = context.store.lock(&format!("apply of layout {name}"))?;
    let written = ledger.change(|state| {
        let is_same = |before: &Instance| state.instance(&before.id).map(|i| &**i) == Some(before);
        let are_same = { records.iter() }
            .filter_map(|record| record.before.as_ref())
            .all(is_same);
        if !are_same || !keep_their_leases(state, &records) {
            return Ok(false);
        }
        for record in &records {
            state.put_instance(record.instance.clone())?;
        }
        Ok(true)
    })?;
    Ok(written.then_some(steps))
}

/// Returns whether no release of the leases on these records has begun since the look: it may destroy an instance that is
/// to stay. A release that begins later sees the new record.
fn keep_their_leases(state: &State, records: &[Entry]) -> bool {
    let is_ending = |record: &Entry| {
        let mut leases = { state.leases.iter() }
            .filter(|lease| lease.instance == record.instance.id)
            .map(|lease| lease.state);
        let first = leases.next();
        first == Some(LeaseState::Releasing) && leases.all(|state| state == LeaseState::Releasing)
    };
    !records.iter().any(is_ending)
}

struct Draft<'a, D> {
    driver: &'a D,
    name: &'a str,
    operation: &'a Operation,
}

impl<D: Queries> Draft<'_, D> {
    fn of_gpu(
        &self,
        plan: &GpuPlan,
        records: &mut Vec<Entry>,
        steps: &mut VecDeque<Step>,
    ) -> Result<()> {
        let state = &plan.state;
        for present in plan.doomed() {
            let mut instance = self.instance(&state.gpu, present, InstanceState::Releasing)?;
            instance.operation = Some(self.operation.id().clone());
            let before = present.record.clone();
            steps.push_back(Step::Destroy {
                instance: Box::new(instance.clone()),
                before: before.clone().map(Box::new),
            });
            records.push(Entry { instance, before });
        }
        for present in plan.changes.keep.iter().map(|n| &state.present[*n]) {
            if !is_marked(present) {
                continue;
            }
            let instance = self.instance(&state.gpu, present, InstanceState::Ready)?;
            let before = present.record.clone();
            if before.as_ref() != Some(&instance) {
                records.push(Entry { instance, before });
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
            steps.push_back(Step::Create {
                instance: Box::new(instance.clone()),
                parts: new.parts.clone(),
                is_whole: new.parts == [profile.compute_slices],
            });
            records.push(Entry {
                instance,
                before: None,
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
            match step {
                Step::Destroy { instance, before } => {
                    // A compute instance of a changed one is gone, so a collector ends it.
                    if state.instance(&instance.id).map(|i| &**i) != Some(&*instance) {
                        continue;
                    }
                    match before {
                        Some(before) => state.put_instance(*before)?,
                        None => drop(state.remove_instance(&instance.id)),
                    }
                }
                Step::Create { instance, .. } if n > 0 => {
                    state.remove_instance(&instance.id);
                }
                Step::Create { .. } => {}
            }
        }
        Ok(())
    })
}
