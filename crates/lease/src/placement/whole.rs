//! Chooses whole GPUs: a pure function of the GPUs and of what is known of each.

use super::room::{Candidate, NoRoom};
use crate::model::MigMode;
use crate::request::Wanted;

/// Chooses so many GPUs: those without MIG first, then by index.
///
/// # Errors
/// Fewer are free.
pub(crate) fn choose_whole<'a>(
    candidates: &[Candidate<'a>],
    count: u32,
) -> Result<Vec<Candidate<'a>>, Box<NoRoom>> {
    let mut free = free(candidates);
    if free.len() < count as usize {
        let wanted = Wanted::Gpus(count);
        return Err(NoRoom::among(wanted, candidates, |on| on.obstacle.clone()));
    }
    free.sort_by_key(|on| (on.gpu.mig != MigMode::Unsupported, on.gpu.index));
    Ok(free.into_iter().take(count as usize).cloned().collect())
}

/// Returns so many of the free GPUs, those with the least memory.
pub(crate) fn smallest_whole<'a>(candidates: &[Candidate<'a>], count: u32) -> Vec<Candidate<'a>> {
    let mut free = free(candidates);
    free.sort_by_key(|on| (on.memory_mib, on.gpu.index));
    free.into_iter().take(count as usize).cloned().collect()
}

fn free<'c, 'a>(candidates: &'c [Candidate<'a>]) -> Vec<&'c Candidate<'a>> {
    let free = candidates.iter().filter(|on| on.obstacle.is_none());
    free.collect()
}

#[cfg(test)]
pub(super) mod tests;
