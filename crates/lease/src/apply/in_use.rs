//! The processes that are in the way of a plan.

use super::look::{GpuState, Present};
use super::plan::Plan;
use crate::context::LeaseContext;
use crate::draft;
use crate::error::{Result, printable};
use crate::gpu::{DetailedGpu, Queries};
use crate::model::GpuUuid;
use crate::process::Holders;
use crate::reclaim;
use crate::store::{InstanceState, Origin, Resource};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The id under which [`InUse`] has the processes of a whole GPU.
pub(super) const WHOLE: u32 = u32::MAX;

/// The processes on instances that a plan destroys and on GPUs that it switches to MIG, as far as they were looked at: by GPU
/// and the driver's id.
#[derive(Default)]
pub(super) struct InUse(BTreeMap<(GpuUuid, u32), Vec<String>>);

impl InUse {
    pub(super) fn of(&self, gpu: &GpuUuid, id: u32) -> &[String] {
        let known = self.0.get(&(gpu.clone(), id));
        known.map_or(&[], |processes| processes.as_slice())
    }

    /// Looks at the instances that plans destroy and that were not looked at before. Returns whether a process holds
    /// one, so that other plans may be better.
    pub(super) fn look_at(
        &mut self,
        context: &LeaseContext<'_>,
        driver: &impl Queries,
        states: &[GpuState],
        plans: &[Plan],
    ) -> Result<bool> {
        let mut found = false;
        for gpu in switched_on(states, plans) {
            let key = (gpu.gpu.uuid.clone(), WHOLE);
            if let Entry::Vacant(entry) = self.0.entry(key) {
                let processes = entry.insert(processes(driver, &gpu.gpu.uuid)?);
                found |= !processes.is_empty();
            }
        }
        for (gpu, present, id) in doomed(states, plans) {
            let key = (gpu.gpu.uuid.clone(), id);
            if self.0.contains_key(&key) || !present.holders.is_empty() {
                continue;
            }
            let holders = holders(context, driver, gpu, present)?;
            found |= !holders.is_empty();
            self.0.insert(key, holders);
        }
        Ok(found)
    }

    /// Returns whether all instances that plans destroy were looked at, and all GPUs that they switch to MIG.
    pub(super) fn knows(&self, states: &[GpuState], plans: &[Plan]) -> bool {
        let known = |gpu: &DetailedGpu, id| self.0.contains_key(&(gpu.gpu.uuid.clone(), id));
        doomed(states, plans).all(|(gpu, _, id)| known(gpu, id))
            && switched_on(states, plans).all(|gpu| known(gpu, WHOLE))
    }
}

/// Returns the GPUs that plans switch to MIG.
fn switched_on<'a>(
    states: &'a [GpuState],
    plans: &'a [Plan],
) -> impl Iterator<Item = &'a DetailedGpu> {
    let both = states.iter().zip(plans);
    both.filter(|(_, plan)| plan.mode == Some(true))
        .map(|(state, _)| &state.gpu)
}

/// Returns the processes on a GPU outside of MIG mode.
fn processes(driver: &impl Queries, gpu: &GpuUuid) -> Result<Vec<String>> {
    let load = driver.load(gpu)?;
    let all = load.processes.iter().chain(&load.graphics);
    let pids: BTreeSet<u32> = all.map(|process| process.pid).collect();
    Ok(pids.iter().map(|pid| format!("process {pid}")).collect())
}

/// Returns the instances that plans destroy, each with its id.
fn doomed<'a>(
    states: &'a [GpuState],
    plans: &'a [Plan],
) -> impl Iterator<Item = (&'a DetailedGpu, &'a Present, u32)> {
    states.iter().zip(plans).flat_map(|(state, plan)| {
        let present = plan.destroy.iter().map(|n| &state.present[*n]);
        present.filter_map(|present| Some((&state.gpu, present, present.id?)))
    })
}

/// Returns the processes on an instance. One that cannot be seen counts.
fn holders(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    gpu: &DetailedGpu,
    present: &Present,
) -> Result<Vec<String>> {
    let (Some(slice), Some(id)) = (present.slice(gpu), present.id) else {
        return Ok(Vec::new());
    };
    let state = (Origin::Administrator, InstanceState::Ready);
    let instance = draft::instance(context, Resource::Mig(slice), state)?;
    let Holders { seen, unseen } = reclaim::holders(context, &instance);
    let named = |(pid, name): (i32, String)| format!("process {pid} {}", printable(&name));
    let mut all: Vec<String> = seen.into_iter().map(named).collect();
    for ci in &present.compute {
        for pid in driver.processes(&gpu.gpu.uuid, id, ci.instance.id)? {
            let begin = format!("process {pid}");
            let is_it = |known: &String| known.split(' ').take(2).eq(begin.split(' '));
            if !all.iter().any(is_it) {
                all.push(begin);
            }
        }
    }
    let doubt = unseen.map(|why| format!("a process that runmig cannot see ({why})"));
    all.extend(doubt);
    Ok(all)
}
