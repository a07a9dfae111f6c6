//! Chooses whole GPUs: a pure function of the GPUs and of what is known of each.

use crate::model::{Gpu, GpuUuid, Level, MigMode};

/// The use of a GPU outside of slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuUse {
    /// MIG is on, or is on after the next reset.
    Mig {
        /// Says whether only the next reset switches MIG on.
        pending: bool,
    },
    /// Nothing is on the GPU.
    Free,
    /// A lease holds the GPU.
    Exclusive {
        /// The holder's name. None if a record cannot be read, or if no container has it.
        holder: Option<String>,
    },
    /// Leases share the GPU.
    Shared {
        /// The holders' names, at least one. The name is empty if no container has the lease, or if its record
        /// cannot be read.
        holders: Vec<String>,
        /// The memory that they have booked, in MiB.
        booked_mib: u64,
        /// The level of all shares of the GPU.
        level: Level,
    },
    /// Processes compute on the GPU that belong to no lease.
    Foreign {
        /// The processes.
        pids: Vec<u32>,
    },
    /// Compute mode Prohibited: no process may compute on the GPU.
    Prohibited,
    /// The driver does not tell the use of the GPU.
    Unknown {
        /// The driver's error.
        why: String,
    },
}

/// The obstacle of one GPU for a request of a share or of whole GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuObstacle {
    /// Its use. It is never `Free`.
    Used(GpuUse),
    /// A rule keeps the requester from it, in the rule's words.
    Excluded(String),
    /// Earlier requests in the queue could use it.
    Queued,
    /// Too little of its memory is free for the share.
    Full {
        /// The free memory, in MiB.
        free_mib: u64,
        /// The memory that the GPU gives out, in MiB.
        gives_out: u64,
        /// The memory of processes without a lease, in MiB.
        foreign_mib: u64,
        /// The holders of its shares.
        holders: Vec<String>,
    },
    /// It has as many shares as one GPU takes.
    Crowded {
        /// That number.
        most: u32,
    },
    /// The share is more than the GPU gives out.
    TooLarge {
        /// The memory that the GPU gives out, in MiB.
        gives_out: u64,
    },
    /// The share is too small for a CUDA context.
    TooSmall {
        /// The memory of the share, in MiB.
        memory_mib: u64,
    },
    /// Compute mode Exclusive_Process: one process or MPS server alone may compute on it.
    OneProcess,
    /// Its shares have another level.
    OtherLevel(Level),
    /// No permitted level is possible there, for these reasons.
    NoLevel(String),
}

/// A GPU on trial for a request of whole GPUs.
#[derive(Debug, Clone)]
pub struct WholeCandidate<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// The memory that the GPU gives out, in MiB, if the driver tells.
    pub memory_mib: Option<u64>,
    /// The obstacle. None if the GPU is free for the request.
    pub obstacle: Option<GpuObstacle>,
}

/// A request for whole GPUs that gets none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuShortage {
    /// The number of requested GPUs.
    pub count: u32,
    /// The indexes of the GPUs that are free for the request.
    pub free: Vec<u32>,
    /// The other GPUs by index, each with its obstacle.
    pub taken: Vec<(u32, GpuObstacle)>,
    /// The driver's errors for GPUs that it cannot read.
    pub unreadable: Vec<String>,
}

impl GpuObstacle {
    /// Says whether the obstacle passes without an administrator.
    pub fn may_pass(&self) -> bool {
        match self {
            GpuObstacle::Queued
            | GpuObstacle::Full { .. }
            | GpuObstacle::Crowded { .. }
            | GpuObstacle::OtherLevel(_) => true,
            GpuObstacle::Excluded(_)
            | GpuObstacle::TooLarge { .. }
            | GpuObstacle::TooSmall { .. }
            | GpuObstacle::OneProcess
            | GpuObstacle::NoLevel(_) => false,
            GpuObstacle::Used(usage) => match usage {
                GpuUse::Exclusive { .. }
                | GpuUse::Shared { .. }
                | GpuUse::Foreign { .. }
                | GpuUse::Unknown { .. } => true,
                GpuUse::Mig { .. } | GpuUse::Prohibited | GpuUse::Free => false,
            },
        }
    }

    /// Says whether a process without a lease is in the way, or an answer of the driver is missing.
    pub fn is_foreign(&self) -> bool {
        match self {
            GpuObstacle::Used(GpuUse::Foreign { .. } | GpuUse::Unknown { .. }) => true,
            GpuObstacle::Full { foreign_mib, .. } => *foreign_mib > 0,
            _ => false,
        }
    }
}

impl GpuShortage {
    /// Says whether a wait may help: enough GPUs are free or may become free.
    pub fn may_pass(&self) -> bool {
        let passing = self.taken.iter().filter(|(_, why)| why.may_pass());
        self.free.len() + passing.count() >= self.count as usize
    }

    /// Says whether a process without a lease is in the way, or an answer of the driver is missing. No event
    /// tells the end of either.
    pub fn has_foreign(&self) -> bool {
        self.taken.iter().any(|(_, why)| why.is_foreign())
    }

    /// Says whether all that is missing is reserved for earlier requests.
    pub fn is_queued(&self) -> bool {
        let queued = self.taken.iter();
        let queued = queued.filter(|(_, why)| *why == GpuObstacle::Queued);
        self.free.len() + queued.count() >= self.count as usize
    }
}

/// Chooses so many GPUs: those without MIG first, then by index.
///
/// # Errors
/// The shortage, if fewer are free.
pub(crate) fn choose_whole<'a>(
    candidates: &[WholeCandidate<'a>],
    unreadable: &[(u32, String)],
    count: u32,
) -> Result<Vec<WholeCandidate<'a>>, GpuShortage> {
    let mut free: Vec<&WholeCandidate<'a>> = { candidates.iter() }
        .filter(|c| c.obstacle.is_none())
        .collect();
    if free.len() < count as usize {
        let taken = candidates.iter();
        let taken = taken.filter_map(|c| Some((c.gpu.index, c.obstacle.clone()?)));
        return Err(GpuShortage {
            count,
            free: free.iter().map(|c| c.gpu.index).collect(),
            taken: taken.collect(),
            unreadable: unreadable.iter().map(|(_, why)| why.clone()).collect(),
        });
    }
    free.sort_by_key(|c| (c.gpu.mig != MigMode::Unsupported, c.gpu.index));
    Ok(free.into_iter().take(count as usize).cloned().collect())
}

/// Returns so many of the free GPUs, those with the least memory.
pub(crate) fn smallest_whole<'a>(
    candidates: &[WholeCandidate<'a>],
    count: u32,
) -> Vec<WholeCandidate<'a>> {
    let mut free: Vec<&WholeCandidate<'a>> = { candidates.iter() }
        .filter(|c| c.obstacle.is_none())
        .collect();
    free.sort_by_key(|c| (c.memory_mib, c.gpu.index));
    free.into_iter().take(count as usize).cloned().collect()
}

/// Returns the GPUs for which a request waits: those that are free for it, or may become free.
pub(crate) fn awaited(candidates: &[WholeCandidate<'_>]) -> Vec<GpuUuid> {
    let passes =
        |c: &&WholeCandidate<'_>| { c.obstacle.as_ref() }.is_none_or(GpuObstacle::may_pass);
    let awaited = candidates.iter().filter(passes);
    awaited.map(|c| c.gpu.uuid.clone()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::placement) fn gpu(index: u32, mig: MigMode) -> Gpu {
        Gpu {
            index,
            minor: index,
            uuid: GpuUuid::new(format!("GPU-{index}")),
            name: "a GPU".to_owned(),
            pci_bus_id: String::new(),
            mig,
            mig_pending: None,
            profiles: Vec::new(),
            instances: Vec::new(),
        }
    }

    fn candidate(gpu: &Gpu, obstacle: Option<GpuObstacle>) -> WholeCandidate<'_> {
        WholeCandidate {
            gpu,
            memory_mib: Some(1),
            obstacle,
        }
    }

    fn indexes(chosen: &[WholeCandidate<'_>]) -> Vec<u32> {
        chosen.iter().map(|c| c.gpu.index).collect()
    }

    #[test]
    fn prefers_gpus_without_mig() {
        let gpus = [
            gpu(0, MigMode::Disabled),
            gpu(1, MigMode::Unsupported),
            gpu(2, MigMode::Unsupported),
        ];
        let all = gpus.each_ref().map(|g| candidate(g, None));
        assert_eq!(indexes(&choose_whole(&all, &[], 1).unwrap()), [1]);
        assert_eq!(indexes(&choose_whole(&all, &[], 2).unwrap()), [1, 2]);
        assert_eq!(indexes(&choose_whole(&all, &[], 3).unwrap()), [1, 2, 0]);
    }

    #[test]
    fn gives_all_or_none() {
        let gpus = [0, 1, 2].map(|n| gpu(n, MigMode::Unsupported));
        let held = GpuObstacle::Used(GpuUse::Exclusive { holder: None });
        let mig = GpuObstacle::Used(GpuUse::Mig { pending: false });
        let all = [
            candidate(&gpus[0], Some(held.clone())),
            candidate(&gpus[1], None),
            candidate(&gpus[2], Some(mig.clone())),
        ];
        let short = choose_whole(&all, &[], 2).unwrap_err();
        assert_eq!((short.free.as_slice(), short.may_pass()), (&[1][..], true));
        assert_eq!(short.taken, [(0, held), (2, mig)]);
        // MIG mode does not end by itself.
        assert!(!choose_whole(&all, &[], 3).unwrap_err().may_pass());
        assert_eq!(awaited(&all), ["GPU-0", "GPU-1"].map(GpuUuid::from));
    }
}
