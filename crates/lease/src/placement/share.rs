//! Chooses the GPU of a share: a pure function of the GPUs and of what is booked on each.

use super::whole::{GpuObstacle, GpuUse};
use crate::model::{Gpu, GpuUuid, Level, MigMode};
use crate::request::{LEAST_MIB, ShareSize};

/// A GPU on trial for a share.
#[derive(Debug, Clone)]
pub struct ShareCandidate<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// The memory that the GPU gives out, in MiB, if the driver tells.
    pub memory_mib: Option<u64>,
    /// The memory that is left of it, in MiB.
    pub free_mib: u64,
    /// The memory of processes without a lease, in MiB.
    pub foreign_mib: u64,
    /// The holders of the shares of the GPU.
    pub holders: Vec<String>,
    /// The level of a share there. None only with an obstacle.
    pub level: Option<ShareLevel>,
    /// The obstacle for a share of any size. None if there is none.
    pub obstacle: Option<GpuObstacle>,
    /// Says whether earlier requests in the queue could use the GPU.
    pub is_queued: bool,
}

/// The level of a share on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareLevel {
    /// The level.
    pub level: Level,
    /// The number of permitted levels that are better.
    pub rank: usize,
    /// The memory that the level itself needs, in MiB.
    pub overhead_mib: u64,
}

/// The place of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharePlace<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// The memory that the GPU gives out, in MiB.
    pub gives_out_mib: u64,
    /// The memory of the share, in MiB.
    pub memory_mib: u64,
    /// The memory that it books, in MiB.
    pub booked_mib: u64,
    /// The level of the share.
    pub level: Level,
}

/// A request for a share that gets none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareShortage {
    /// The requested sizes.
    pub sizes: Vec<ShareSize>,
    /// Every GPU by index, with its obstacle.
    pub taken: Vec<(u32, GpuObstacle)>,
    /// The driver's errors for GPUs that it cannot read.
    pub unreadable: Vec<String>,
    /// The GPUs for which the request may wait.
    pub awaited: Vec<GpuUuid>,
}

impl ShareShortage {
    /// Says whether a wait may help.
    pub fn may_pass(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Says whether a process without a lease is in the way, or an answer of the driver is missing. No event
    /// tells the end of either.
    pub fn has_foreign(&self) -> bool {
        self.taken.iter().any(|(_, why)| why.is_foreign())
    }

    /// Says whether a GPU that has room is reserved for earlier requests.
    pub fn is_queued(&self) -> bool {
        self.taken
            .iter()
            .any(|(_, why)| *why == GpuObstacle::Queued)
    }
}

/// The terms of a choice.
pub struct ShareTerms<'a> {
    /// The sizes in order of preference.
    pub sizes: &'a [ShareSize],
    /// The number of shares that one GPU takes.
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
    /// Returns the memory of a share of a size on a GPU, and the memory that it books, in MiB; else the obstacle.
    /// An amount is the memory of the share, and the level's own need comes on top. A fraction is all that the
    /// share books, so that all parts of a GPU fit.
    pub(super) fn place(
        &self,
        on: &ShareCandidate<'_>,
        size: ShareSize,
    ) -> Result<(u64, u64), GpuObstacle> {
        if let Some(obstacle) = &on.obstacle {
            return Err(obstacle.clone());
        }
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
        if on.is_queued {
            return Err(GpuObstacle::Queued);
        }
        over.map_or(Ok((memory_mib, booked_mib)), |over| {
            Err(GpuObstacle::Excluded(over.words))
        })
    }

    /// Returns the obstacle of a GPU for all sizes: the first that passes, else that of the last size. None if
    /// one of them fits.
    pub(crate) fn obstacle(&self, on: &ShareCandidate<'_>) -> Option<GpuObstacle> {
        let mut found: Option<GpuObstacle> = None;
        for size in self.sizes {
            let obstacle = self.place(on, *size).err()?;
            if !found.as_ref().is_some_and(GpuObstacle::may_pass) {
                found = Some(obstacle);
            }
        }
        found
    }
}

/// Chooses the GPU for the first size that fits on one. GPUs with the best level come first, then shared GPUs and
/// those without MIG before empty ones that could do MIG, then the GPU with the least free memory, then the lowest
/// index.
///
/// # Errors
/// The shortage, if no size fits on any GPU.
pub fn choose_share<'a>(
    candidates: &[ShareCandidate<'a>],
    unreadable: &[(u32, String)],
    terms: &ShareTerms<'_>,
) -> Result<SharePlace<'a>, ShareShortage> {
    let order = |on: &ShareCandidate<'_>| {
        let could_do_mig = on.holders.is_empty() && on.gpu.mig != MigMode::Unsupported;
        let rank = on.level.map_or(usize::MAX, |level| level.rank);
        (rank, could_do_mig, on.free_mib, on.gpu.index)
    };
    for size in terms.sizes {
        let fits = candidates.iter();
        let fits = fits.filter_map(|on| Some((on, terms.place(on, *size).ok()?)));
        if let Some((on, (memory_mib, booked_mib))) = fits.min_by_key(|(on, _)| order(on)) {
            return Ok(SharePlace {
                gpu: on.gpu,
                gives_out_mib: on.memory_mib.unwrap_or_default(),
                memory_mib,
                booked_mib,
                level: on.level.map_or(Level::None, |level| level.level),
            });
        }
    }
    let taken = candidates.iter();
    let taken = taken.filter_map(|on| Some((on.gpu, terms.obstacle(on)?)));
    let taken: Vec<(&Gpu, GpuObstacle)> = taken.collect();
    let passing = taken.iter().filter(|(_, why)| why.may_pass());
    Err(ShareShortage {
        sizes: terms.sizes.to_vec(),
        awaited: passing.map(|(gpu, _)| gpu.uuid.clone()).collect(),
        taken: taken
            .into_iter()
            .map(|(gpu, why)| (gpu.index, why))
            .collect(),
        unreadable: unreadable.iter().map(|(_, why)| why.clone()).collect(),
    })
}

/// Returns the obstacle that the use of a GPU is for a share.
pub(crate) fn obstacle_of(usage: &GpuUse) -> Option<GpuObstacle> {
    match usage {
        GpuUse::Free | GpuUse::Shared { .. } => None,
        GpuUse::Mig { .. }
        | GpuUse::Exclusive { .. }
        | GpuUse::Foreign { .. }
        | GpuUse::Prohibited
        | GpuUse::Unknown { .. } => Some(GpuObstacle::Used(usage.clone())),
    }
}

#[cfg(test)]
mod tests;
