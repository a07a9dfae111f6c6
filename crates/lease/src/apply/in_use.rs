//! The processes that are in the way of a plan.

use super::occupants::Present;
use super::plan::GpuPlan;
use crate::draft;
use crate::error::{Result, printable};
use crate::gpu::{DetailedGpu, Queries};
use crate::leases::Leases;
use crate::model::GpuUuid;
use crate::process::Holders;
use crate::reclaim;
use crate::store::{InstanceState, Origin, Resource};
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

    /// Looks at the instances that plans destroy and that were not looked at before, and at the GPUs that they switch to MIG.
    /// Returns whether a process holds one, so that other plans may be better.
    pub(super) fn look_at(
        &mut self,
        context: &Leases<'_>,
        driver: &impl Queries,
        gpus: &[GpuPlan],
    ) -> Result<bool> {
        let mut found = false;
        for (gpu, present, id) in ending(gpus) {
            let key = (gpu.uuid().clone(), id);
            if self.0.contains_key(&key) || present.is_some_and(|one| !one.holders.is_empty()) {
                continue;
            }
            let holders = match present {
                Some(present) => holders(context, driver, &gpu.state.gpu, present, id)?,
                None => processes(driver, gpu.uuid())?,
            };
            found |= !holders.is_empty();
            self.0.insert(key, holders);
        }
        Ok(found)
    }

    /// Returns whether all these instances and GPUs were looked at.
    pub(super) fn knows(&self, gpus: &[GpuPlan]) -> bool {
        ending(gpus).all(|(gpu, _, id)| self.0.contains_key(&(gpu.uuid().clone(), id)))
    }
}

/// Returns the instances that plans destroy, each with its id, and the GPUs that they switch to MIG.
fn ending(gpus: &[GpuPlan]) -> impl Iterator<Item = (&GpuPlan, Option<&Present>, u32)> {
    gpus.iter().flat_map(|gpu| {
        let doomed = gpu.doomed();
        let doomed = doomed.filter_map(move |present| Some((gpu, Some(present), present.id?)));
        let whole = (gpu.mode == Some(true)).then_some((gpu, None, WHOLE));
        doomed.chain(whole)
    })
}

/// Returns the processes on a GPU outside of MIG mode.
fn processes(driver: &impl Queries, gpu: &GpuUuid) -> Result<Vec<String>> {
    let load = driver.load(gpu)?;
    let all = load.processes.iter().chain(&load.graphics);
    let pids: BTreeSet<u32> = all.map(|process| process.pid).collect();
    Ok(pids.iter().map(|pid| format!("process {pid}")).collect())
}

/// Returns the processes on an instance. One that cannot be seen counts.
fn holders(
    context: &Leases<'_>,
    driver: &impl Queries,
    gpu: &DetailedGpu,
    present: &Present,
    id: u32,
) -> Result<Vec<String>> {
    let Some(slice) = present.slice(gpu) else {
        return Ok(Vec::new());
    };
    let instance = draft::instance(
        Resource::Mig(slice),
        Origin::Administrator,
        InstanceState::Ready,
    )?;
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
