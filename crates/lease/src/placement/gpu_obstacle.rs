//! The use of a GPU outside of slices, and what keeps a request from a GPU.

use crate::model::{Level, Shut};

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

/// The obstacle of one GPU for a request, or of a slice with seats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuObstacle {
    /// Its use. It is never `Free`.
    Used(GpuUse),
    /// A rule keeps the requester from it, in the rule's words.
    Excluded(String),
    /// It cannot hold the request.
    Unfit(String),
    /// Its next reset switches MIG off.
    EndsMig,
    /// It gives nothing new now.
    Closed(Shut),
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
    /// The driver does not tell how much memory it has, so no part of it can be booked.
    NoFigure,
    /// Compute mode Exclusive_Process: one process or MPS server alone may compute on it.
    OneProcess,
    /// Its shares have another level.
    OtherLevel(Level),
    /// No permitted level is possible there, for these reasons.
    NoLevel(String),
}

impl GpuObstacle {
    /// Returns the obstacle of a GPU or a slice of which the driver does not tell enough.
    pub(crate) fn unknown(why: impl Into<String>) -> GpuObstacle {
        GpuObstacle::Used(GpuUse::Unknown { why: why.into() })
    }

    /// Says whether the obstacle passes without an administrator.
    pub fn may_pass(&self) -> bool {
        match self {
            GpuObstacle::Queued
            | GpuObstacle::Closed(_)
            | GpuObstacle::Full { .. }
            | GpuObstacle::Crowded { .. }
            | GpuObstacle::OtherLevel(_) => true,
            GpuObstacle::Used(usage) => !matches!(
                usage,
                GpuUse::Mig { .. } | GpuUse::Prohibited | GpuUse::Free
            ),
            _ => false,
        }
    }

    /// Returns the administrator's next step where the GPU gives nothing new now.
    pub(crate) fn remedy(&self) -> Option<&str> {
        match self {
            GpuObstacle::Closed(shut) => Some(&shut.remedy),
            _ => None,
        }
    }
}
