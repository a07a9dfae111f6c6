//! Chooses the GPU of a share, or the slice of a seat: a pure function of these and of what is booked on each.

use super::gpu_obstacle::GpuObstacle;
use super::no_room::{Candidate, NoRoom};
use crate::model::{Level, MigMode};
use crate::request::{LEAST_MIB, ShareSize, Wanted};

/// The memory of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareMemory {
    /// What the container may use, in MiB.
    pub memory_mib: u64,
    /// What it books, in MiB: with the level's own need.
    pub booked_mib: u64,
    /// The level that limits it.
    pub level: Level,
}

/// The terms of a choice.
#[derive(Clone, Copy)]
pub struct ShareTerms<'a> {
    /// The sizes in order of preference.
    pub sizes: &'a [ShareSize],
    /// The number of shares that one GPU or slice takes.
    pub most: u32,
    /// Returns the limit that forbids so many MiB more to the requester.
    pub limit: &'a dyn Fn(u64) -> Option<Over>,
}

/// A limit of the policy that a share exceeds.
pub struct Over {
    /// The limit in words.
    pub words: String,
    /// Says whether it forbids the share even to a requester that holds nothing.
    pub is_final: bool,
}

impl ShareTerms<'_> {
    /// Returns the memory of a share of a size on a GPU, or of a seat in a slice; else the obstacle.
    /// An amount is the memory of the share, and the level's own need comes on top. A fraction is all that the
    /// share books, so that all parts of a GPU fit.
    pub(crate) fn place(
        &self,
        on: &Candidate<'_>,
        size: ShareSize,
    ) -> Result<ShareMemory, GpuObstacle> {
        let passing = match &on.obstacle {
            Some(obstacle) if obstacle.may_pass() && on.memory_mib.is_some() => Some(obstacle),
            Some(obstacle) => return Err(obstacle.clone()),
            None => None,
        };
        let gives_out = on.memory_mib.unwrap_or_default();
        let overhead = on.level.map_or(0, |level| level.overhead_mib);
        let (memory_mib, booked_mib) = size.on(gives_out, overhead);
        if booked_mib > gives_out {
            return Err(GpuObstacle::TooLarge { gives_out });
        }
        if memory_mib < LEAST_MIB {
            return Err(GpuObstacle::TooSmall { memory_mib });
        }
        let over = (self.limit)(booked_mib);
        if let Some(over) = over.as_ref().filter(|over| over.is_final) {
            return Err(GpuObstacle::Excluded(over.words.clone()));
        }
        if let Some(obstacle) = passing {
            return Err(obstacle.clone());
        }
        if booked_mib > on.free_mib {
            return Err(GpuObstacle::Full {
                free_mib: on.free_mib,
                gives_out,
                foreign_mib: on.foreign_mib,
                holders: on.holders.clone(),
            });
        }
        if on.holders.len() >= self.most as usize {
            return Err(GpuObstacle::Crowded { most: self.most });
        }
        let queued = on.is_queued.then_some(GpuObstacle::Queued);
        let over = over.map(|over| GpuObstacle::Excluded(over.words));
        // A share above a limit that stands behind an earlier request is told to wait, and a seat is told of the limit.
        let obstacle = match on.slice {
            None => queued.or(over),
            Some(_) => over.or(queued),
        };
        obstacle.map_or(Ok(()), Err)?;
        Ok(ShareMemory {
            memory_mib,
            booked_mib,
            level: on.level.map_or(Level::None, |level| level.level),
        })
    }

    /// Returns the obstacle for all sizes: the first that passes, else that of the last size. None if one of them
    /// fits.
    pub(crate) fn obstacle(&self, on: &Candidate<'_>) -> Option<GpuObstacle> {
        let mut found: Option<GpuObstacle> = None;
        for size in self.sizes {
            let obstacle = self.place(on, *size).err()?;
            if !found.as_ref().is_some_and(GpuObstacle::may_pass) {
                found = Some(obstacle);
            }
        }
        found
    }

    /// Chooses one of those that are asked for, for one size. Returns its number, and the memory of the share.
    pub(crate) fn choose(
        &self,
        candidates: &[Candidate<'_>],
        is_asked: impl Fn(&Candidate<'_>) -> bool,
        size: ShareSize,
    ) -> Option<(usize, ShareMemory)> {
        let asked = { candidates.iter().enumerate() }.filter(|(_, on)| is_asked(on));
        let fits = asked.filter_map(|(n, on)| Some((n, self.place(on, size).ok()?)));
        fits.min_by_key(|(n, _)| order(&candidates[*n]))
    }
}

/// Returns the order of candidates. GPUs with the best level come first, then shared GPUs and those without MIG before empty
/// ones that could do MIG; slices that exist before those in the making. Then come those with the least free memory, then the
/// lowest index, then the lowest place.
fn order(on: &Candidate<'_>) -> (usize, bool, u64, u32, u32) {
    let (rank, is_later, start) = match on.slice {
        Some(of) => (0, !of.is_ready, of.at.start),
        None => {
            let could_do_mig = on.holders.is_empty() && on.gpu.mig != MigMode::Unsupported;
            let rank = on.level.map_or(usize::MAX, |level| level.rank);
            (rank, could_do_mig, 0)
        }
    };
    (rank, is_later, on.free_mib, on.gpu.index, start)
}

/// Chooses the GPU for the first size that fits on one, with the memory of the share.
///
/// # Errors
/// No size fits on any GPU.
pub fn choose_share<'c, 'a>(
    candidates: &'c [Candidate<'a>],
    terms: &ShareTerms<'_>,
) -> Result<(&'c Candidate<'a>, ShareMemory), Box<NoRoom>> {
    for size in terms.sizes {
        if let Some((n, memory)) = terms.choose(candidates, |_| true, *size) {
            return Ok((&candidates[n], memory));
        }
    }
    let wanted = Wanted::Share(terms.sizes.to_vec());
    Err(NoRoom::among(wanted, candidates, |on| terms.obstacle(on)))
}

#[cfg(test)]
mod tests;
