//! Chooses the GPU of a share: a pure function of the GPUs and of what is booked on each.

use super::whole::{GpuObstacle, GpuUse};
use crate::model::{Gpu, GpuUuid, MigMode};
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
    /// The obstacle for a share of any size. None if there is none.
    pub obstacle: Option<GpuObstacle>,
    /// Says whether earlier requests in the queue could use the GPU.
    pub is_queued: bool,
}

/// The place of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharePlace<'a> {
    pub gpu: &'a Gpu,
    /// The memory that the GPU gives out, in MiB.
    pub gives_out_mib: u64,
    /// The memory of the share, in MiB.
    pub memory_mib: u64,
}

/// A request for a share that gets none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareShortage {
    /// The requested sizes.
    pub sizes: Vec<ShareSize>,
    /// Every GPU by index, with its obstacle for the last of the sizes.
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

/// Returns the memory of a share of a size on a GPU, in MiB; else the obstacle.
pub(crate) fn share_on(
    on: &ShareCandidate<'_>,
    size: ShareSize,
    most: u32,
) -> Result<u64, GpuObstacle> {
    if let Some(obstacle) = &on.obstacle {
        return Err(obstacle.clone());
    }
    let gives_out = on.memory_mib.unwrap_or_default();
    let memory_mib = size.booked_mib(gives_out);
    if memory_mib > gives_out {
        return Err(GpuObstacle::TooLarge { gives_out });
    }
    if memory_mib < LEAST_MIB {
        return Err(GpuObstacle::TooSmall { memory_mib });
    }
    if memory_mib > on.free_mib {
        return Err(GpuObstacle::Full {
            free_mib: on.free_mib,
            gives_out,
            foreign_mib: on.foreign_mib,
            holders: on.holders.clone(),
        });
    }
    if on.holders.len() >= most as usize {
        return Err(GpuObstacle::Crowded { most });
    }
    match on.is_queued {
        true => Err(GpuObstacle::Queued),
        false => Ok(memory_mib),
    }
}

/// Chooses the GPU for the first size that fits on one. Shared GPUs and those without MIG come before empty ones
/// that could do MIG, then the GPU with the least free memory, then the lowest index. `most` is the number of
/// shares that one GPU takes. `allows` tells whether the requester may have so many MiB more.
///
/// # Errors
/// The shortage, if no size fits on any GPU.
pub(crate) fn choose_share<'a>(
    candidates: &[ShareCandidate<'a>],
    unreadable: &[(u32, String)],
    (sizes, most): (&[ShareSize], u32),
    mut allows: impl FnMut(u64) -> bool,
) -> Result<SharePlace<'a>, ShareShortage> {
    let (mut taken, mut awaited) = (Vec::new(), Vec::new());
    for size in sizes {
        taken.clear();
        let mut fits = Vec::new();
        for on in candidates {
            match share_on(on, *size, most) {
                Ok(memory_mib) => fits.push((on, memory_mib)),
                Err(obstacle) => taken.push((on, obstacle)),
            }
        }
        let passing = taken.iter().filter(|(_, why)| why.may_pass());
        for (on, _) in passing {
            if !awaited.contains(&on.gpu.uuid) {
                awaited.push(on.gpu.uuid.clone());
            }
        }
        let order = |on: &ShareCandidate<'_>| {
            let could_do_mig = on.holders.is_empty() && on.gpu.mig != MigMode::Unsupported;
            (could_do_mig, on.free_mib, on.gpu.index)
        };
        fits.retain(|(_, memory_mib)| allows(*memory_mib));
        if let Some((on, memory_mib)) = fits.into_iter().min_by_key(|(on, _)| order(on)) {
            return Ok(SharePlace {
                gpu: on.gpu,
                gives_out_mib: on.memory_mib.unwrap_or_default(),
                memory_mib,
            });
        }
    }
    Err(ShareShortage {
        sizes: sizes.to_vec(),
        taken: { taken.into_iter() }
            .map(|(on, why)| (on.gpu.index, why))
            .collect(),
        unreadable: unreadable.iter().map(|(_, why)| why.clone()).collect(),
        awaited,
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
