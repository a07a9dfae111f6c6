//! Chooses whole GPUs: a pure function of the GPUs and of what is known of each.

use super::near::nearest;
use super::no_room::{Candidate, NoRoom};
use crate::model::{GpuUuid, MigMode, Nearness};
use crate::request::Wanted;

/// Chooses so many GPUs: those without MIG first, then those that are near each other, then by index.
///
/// # Errors
/// Fewer are free.
pub(crate) fn choose_whole<'a>(
    candidates: &[Candidate<'a>],
    count: u32,
    near: &dyn Fn(&GpuUuid, &GpuUuid) -> Nearness,
) -> Result<Vec<Candidate<'a>>, Box<NoRoom>> {
    let mut free = free(candidates);
    if free.len() < count as usize {
        let wanted = Wanted::Gpus(count);
        return Err(NoRoom::among(wanted, candidates, |on| on.obstacle.clone()));
    }
    let could_do_mig = |on: &&Candidate<'_>| on.gpu.mig != MigMode::Unsupported;
    free.sort_by_key(|on| (could_do_mig(on), on.gpu.index));
    let without = free.iter().filter(|on| !could_do_mig(on)).count();
    let near = |a: usize, b: usize| near(&free[a].gpu.uuid, &free[b].gpu.uuid);
    let count = count as usize;
    let chosen = match without >= count {
        true => nearest(near, 0, without, count),
        false => nearest(near, without, free.len(), count),
    };
    Ok(chosen.into_iter().map(|n| free[n].clone()).collect())
}

/// Returns so many of the free GPUs, those with the least memory.
pub(crate) fn smallest_whole<'a>(candidates: &[Candidate<'a>], count: u32) -> Vec<Candidate<'a>> {
    let mut free = free(candidates);
    free.sort_by_key(|on| (on.memory_mib, on.gpu.index));
    free.into_iter().take(count as usize).cloned().collect()
}

/// Returns the memory, in MiB, of so many of the smallest GPUs with a figure, free or not.
pub(crate) fn least_memory(candidates: &[Candidate<'_>], count: u32) -> u64 {
    let sizes = candidates.iter().filter_map(|on| on.memory_mib);
    let mut sizes: Vec<u64> = sizes.collect();
    sizes.sort_unstable();
    sizes.iter().take(count as usize).sum()
}

fn free<'c, 'a>(candidates: &'c [Candidate<'a>]) -> Vec<&'c Candidate<'a>> {
    let free = candidates.iter().filter(|on| on.obstacle.is_none());
    free.collect()
}

#[cfg(test)]
pub(super) mod tests;
