//! Plans a request for whole GPUs: all that it asks for, or none.

use super::admit::Limits;
use super::denial::Denial;
use crate::config::Config;
use crate::error::Error;
use crate::gpu::Queries;
use crate::inventory::{GpuState, Inventory};
use crate::model::{Gpu, GpuUuid};
use crate::placement::{self, GpuObstacle, GpuShortage, GpuUse, WholeCandidate};
use crate::policy::{Policy, Subject};
use crate::queue;
use crate::refusal::NoRoom;
use crate::store::WholeGpu;

/// Returns every GPU with its obstacle for the requester. It asks the driver only about GPUs that nothing else
/// rules out.
pub(super) fn candidates<'a>(
    driver: &impl Queries,
    inventory: &'a Inventory,
    (policy, subject): (&Policy, &Subject),
) -> Vec<WholeCandidate<'a>> {
    let snapshot = &inventory.snapshot;
    let excluded = policy.excluded(&snapshot.gpus, subject);
    let queued = queue::reserved_gpus(&inventory.waiting);
    let limits = Limits::without_usage(policy, subject.clone());
    let candidate = |gpu: &'a Gpu| {
        if let Some((_, rule)) = excluded.iter().find(|(uuid, _)| *uuid == gpu.uuid) {
            return WholeCandidate {
                gpu,
                memory_mib: None,
                obstacle: Some(GpuObstacle::Excluded(rule.clone())),
            };
        }
        let GpuState {
            usage, memory_mib, ..
        } = inventory.use_of(driver, gpu);
        // A GPU that is too large for a subject that holds nothing is not worth a wait.
        let over = memory_mib.and_then(|mib| limits.allow_gpus(1, mib).err());
        let obstacle = match usage {
            GpuUse::Mig { .. } | GpuUse::Prohibited => Some(GpuObstacle::Used(usage)),
            _ if over.is_some() => over.map(|e| GpuObstacle::Excluded(e.to_string())),
            GpuUse::Free => queued.contains(&gpu.uuid).then_some(GpuObstacle::Queued),
            usage => Some(GpuObstacle::Used(usage)),
        };
        WholeCandidate {
            gpu,
            memory_mib,
            obstacle,
        }
    };
    snapshot.gpus.iter().map(candidate).collect()
}

/// Chooses the GPUs of a request: the preferred ones, or the smallest if a limit on memory forbids those.
pub(super) fn plan(
    candidates: &[WholeCandidate<'_>],
    inventory: &Inventory,
    limits: &Limits<'_>,
    count: u32,
) -> Result<Vec<WholeGpu>, Denial<GpuShortage>> {
    limits.allow_gpus(count, 0)?;
    let unreadable = &inventory.snapshot.unreadable;
    let allowed = |chosen: &[WholeCandidate<'_>]| {
        let memory = chosen.iter().filter_map(|c| c.memory_mib).sum();
        limits.allow_gpus(count, memory)
    };
    let mut chosen =
        placement::choose_whole(candidates, unreadable, count).map_err(Denial::Room)?;
    if let Err(over) = allowed(&chosen) {
        chosen = placement::smallest_whole(candidates, count);
        allowed(&chosen).map_err(|_| over)?;
    }
    let whole = |c: &WholeCandidate<'_>| WholeGpu::of(c.gpu, c.memory_mib.unwrap_or_default());
    Ok(chosen.iter().map(whole).collect())
}

/// The answer that a create for whole GPUs would get now.
pub struct GpuTrial {
    /// Every GPU that the driver can read.
    pub gpus: Vec<GpuOnTrial>,
    /// The outcome of the request.
    pub outcome: GpuOutcome,
}

/// A GPU in such an answer.
pub struct GpuOnTrial {
    /// The driver's index.
    pub index: u32,
    /// The UUID.
    pub uuid: GpuUuid,
    /// The memory that the GPU gives out, in MiB, if the driver was asked.
    pub memory_mib: Option<u64>,
    /// The obstacle for the request, if there is one.
    pub obstacle: Option<GpuObstacle>,
}

/// The outcome of a request for whole GPUs.
pub enum GpuOutcome {
    /// The request gets these GPUs.
    Fits(Vec<WholeGpu>),
    /// The request exceeds a limit.
    Limited(Error),
    /// Too few GPUs are free.
    No(GpuShortage),
}

/// Answers a request for so many whole GPUs, and writes nothing.
///
/// # Errors
/// The policy forbids the request.
pub fn try_gpus(
    (config, driver): (&Config, &impl Queries),
    inventory: &Inventory,
    (count, subject): (u32, Subject),
) -> crate::error::Result<GpuTrial> {
    let policy = &config.policy;
    policy.check_gpus(count)?;
    let limits = Limits::new(policy, subject.clone(), inventory);
    let candidates = candidates(driver, inventory, (policy, &subject));
    let outcome = match plan(&candidates, inventory, &limits, count) {
        Ok(chosen) => GpuOutcome::Fits(chosen),
        Err(Denial::Limit(over)) => GpuOutcome::Limited(over),
        Err(Denial::Room(no)) => GpuOutcome::No(no),
    };
    let on_trial = |c: WholeCandidate<'_>| GpuOnTrial {
        index: c.gpu.index,
        uuid: c.gpu.uuid.clone(),
        memory_mib: c.memory_mib,
        obstacle: c.obstacle,
    };
    Ok(GpuTrial {
        gpus: candidates.into_iter().map(on_trial).collect(),
        outcome,
    })
}

/// Returns the error of a create with this shortage.
pub fn shortage_error(shortage: GpuShortage, inventory: &Inventory) -> Error {
    NoRoom::Gpus(shortage).error(&inventory.waiting, None)
}
