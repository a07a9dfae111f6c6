//! Plans a request for whole GPUs, all that it asks for or none, or for a share of one.

use super::admit::Machine;
use super::found::{Denial, Found, Piece, Placed, share};
use super::levels::Levels;
use crate::gpu::Queries;
use crate::inventory::GpuState;
use crate::model::{ComputeMode, Gpu, GpuUuid, Nearness};
use crate::placement::{self, Candidate, GpuObstacle, GpuUse};
use crate::policy::Kind;
use crate::queue;
use crate::request::ShareSize;
use crate::store::{Resource, WholeGpu};

/// Returns every GPU with its obstacle for the requester. It asks the driver only about GPUs that nothing else
/// rules out. `levels`: those of a share, or none for whole GPUs.
pub(super) fn candidates<'a>(
    machine: &Machine<'a, impl Queries>,
    levels: Option<&Levels>,
) -> Vec<Candidate<'a>> {
    let (excluded, inventory) = (machine.excluded(), machine.inventory);
    let queued = queue::reserved_gpus(&inventory.waiting);
    let candidate = |gpu: &'a Gpu| {
        let mut on = Candidate {
            is_queued: queued.contains(&gpu.uuid),
            ..Candidate::new(gpu)
        };
        if let Some((_, rule)) = excluded.iter().find(|(uuid, _)| *uuid == gpu.uuid) {
            on.obstacle = Some(GpuObstacle::Excluded(rule.clone()));
            return on;
        }
        let state = inventory.use_of(machine.driver, gpu);
        on.memory_mib = state.memory_mib;
        match levels {
            None => for_all(machine, &mut on, state),
            Some(levels) => for_share(machine, &mut on, state, levels),
        }
        // What stays after it is open again counts more.
        if on.obstacle.as_ref().is_none_or(GpuObstacle::may_pass)
            && let Some(shut) = gpu.shut()
        {
            on.obstacle = Some(GpuObstacle::Closed(shut));
        }
        on
    };
    inventory.snapshot.gpus.iter().map(candidate).collect()
}

fn for_all(machine: &Machine<'_, impl Queries>, on: &mut Candidate<'_>, state: GpuState) {
    // A GPU that is too large for a subject that holds nothing is not worth a wait.
    let nobody = machine.limits_of_nobody();
    let over = |mib| nobody.allow(Kind::Gpu, 1, mib).err();
    let too_large = on.memory_mib.and_then(over);
    on.obstacle = match state.usage {
        GpuUse::Mig { .. } | GpuUse::Prohibited => Some(GpuObstacle::Used(state.usage)),
        _ if too_large.is_some() => too_large.map(|e| GpuObstacle::Excluded(e.to_string())),
        GpuUse::Free if on.memory_mib.is_none() && over(u64::MAX).is_some() => {
            let rule = "a limit counts memory, and the driver does not tell how much this GPU has";
            Some(GpuObstacle::Excluded(rule.to_owned()))
        }
        GpuUse::Free => on.is_queued.then_some(GpuObstacle::Queued),
        usage => Some(GpuObstacle::Used(usage)),
    };
}

fn for_share(
    machine: &Machine<'_, impl Queries>,
    on: &mut Candidate<'_>,
    state: GpuState,
    levels: &Levels,
) {
    let taken = state.foreign_mib.map(|mib| mib + state.booked_mib());
    let free = state.memory_mib.zip(taken);
    on.foreign_mib = state.foreign_mib.unwrap_or_default();
    on.free_mib = free.map_or(0, |(all, taken)| all.saturating_sub(taken));
    let may_share = matches!(state.usage, GpuUse::Free | GpuUse::Shared { .. });
    on.obstacle = match state.compute_mode {
        _ if !may_share => Some(GpuObstacle::Used(state.usage.clone())),
        Some(ComputeMode::Prohibited) => Some(GpuObstacle::Used(GpuUse::Prohibited)),
        Some(ComputeMode::ExclusiveProcess) => Some(GpuObstacle::OneProcess),
        Some(ComputeMode::Default) if state.memory_mib.is_none() => Some(GpuObstacle::NoFigure),
        Some(ComputeMode::Default) if state.foreign_mib.is_some() => None,
        Some(ComputeMode::Default) => {
            let why = "the driver does not tell the memory of a process without a lease";
            Some(GpuObstacle::unknown(why))
        }
        None => {
            let why = state.error.as_deref();
            let why = why.unwrap_or("the driver does not tell its use");
            Some(GpuObstacle::unknown(why))
        }
    };
    if on.obstacle.is_none() {
        match levels.of_gpu(machine.driver, on.gpu) {
            Ok(level) => on.level = Some(level),
            Err(obstacle) => on.obstacle = Some(obstacle),
        }
    }
    if let GpuUse::Shared { holders, level, .. } = state.usage {
        on.holders = holders;
        if on.level.is_some_and(|ours| ours.level != level) {
            on.obstacle = on.obstacle.take().or(Some(GpuObstacle::OtherLevel(level)));
        }
    }
}

/// Chooses the GPUs of a request: the preferred ones, or the smallest if a limit on memory forbids those.
pub(super) fn plan<'a>(
    machine: &Machine<'_, impl Queries>,
    candidates: &[Candidate<'_>],
    count: u32,
) -> Result<Found<'a>, Denial> {
    let limits = machine.limits();
    let least = placement::least_memory(candidates, count);
    limits.allow(Kind::Gpu, count, least)?;
    let allowed = |chosen: &[Candidate<'_>]| {
        let memory = chosen.iter().filter_map(|on| on.memory_mib).sum();
        limits.allow(Kind::Gpu, count, memory)
    };
    let near = |one: &GpuUuid, other: &GpuUuid| near(machine.driver, one, other);
    let chosen = placement::choose_whole(candidates, count, &near);
    let mut chosen = chosen.map_err(|no| Denial::Room(no.beside(&machine.inventory.snapshot)))?;
    if let Err(over) = allowed(&chosen) {
        chosen = placement::smallest_whole(candidates, count);
        allowed(&chosen).map_err(|_| over)?;
    }
    let whole = |on: &Candidate<'_>| WholeGpu::of(on.gpu, on.memory_mib.unwrap_or_default());
    let piece = |on| Piece::Placed(Placed::all(Resource::Gpu(whole(on))));
    let pieces = chosen.iter().map(piece).collect();
    Ok(Found::Pieces(pieces, Vec::new()))
}

/// Returns how near two GPUs are. Without an answer they are apart.
fn near(driver: &impl Queries, one: &GpuUuid, other: &GpuUuid) -> Nearness {
    { driver.nearness(one, other.clone()) }.unwrap_or(Nearness::Apart)
}

/// Returns how near those two of several GPUs are that are the farthest apart.
pub(super) fn farthest(driver: &impl Queries, gpus: &[WholeGpu]) -> Option<Nearness> {
    let pairs =
        { gpus.iter().enumerate() }.flat_map(|(n, a)| gpus[..n].iter().map(move |b| (a, b)));
    { pairs.map(|(a, b)| near(driver, &a.gpu_uuid, &b.gpu_uuid)) }.min()
}

/// Chooses the GPU of a share.
pub(super) fn plan_share<'a>(
    machine: &Machine<'a, impl Queries>,
    candidates: &[Candidate<'_>],
    sizes: &[ShareSize],
    levels: &Levels,
) -> Result<Found<'a>, Denial> {
    let limits = machine.limits();
    let limits = limits.for_share()?;
    let limit = |mib| limits.over(mib);
    let chosen = placement::choose_share(candidates, &levels.of_sizes(sizes, &limit));
    let (on, memory) =
        chosen.map_err(|no| limits.denial(None, no.beside(&machine.inventory.snapshot)))?;
    let beside = machine.inventory.sharers(&on.gpu.uuid, memory.level);
    let place = Placed {
        portion: share(memory),
        on: Resource::Gpu(WholeGpu::of(on.gpu, on.memory_mib.unwrap_or_default())),
        beside: beside.collect(),
        may_make: true,
    };
    Ok(Found::Pieces(vec![Piece::Placed(place)], Vec::new()))
}
