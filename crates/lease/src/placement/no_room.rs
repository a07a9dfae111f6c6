//! What a request finds outside of new slices: GPUs, and slices with seats, each with its obstacle; and the answer to a
//! request of any kind that gets nothing.

use super::rejection::Rejection;
use crate::counters::Outcome;
use crate::model::{Gpu, GpuUuid, Level, Placement, Profile, Shut};
use crate::request::{Slices, Wanted};

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

/// A GPU on trial for a request, or a slice with seats.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// The slice. None for the GPU itself.
    pub slice: Option<CandidateSlice<'a>>,
    /// The memory that it gives out, in MiB, if the driver tells.
    pub memory_mib: Option<u64>,
    /// The memory that is left of it, in MiB.
    pub free_mib: u64,
    /// The memory of processes without a lease, in MiB.
    pub foreign_mib: u64,
    /// The holders of its shares.
    pub holders: Vec<String>,
    /// The level of a share there. None only with an obstacle, and for a request of whole GPUs.
    pub level: Option<ShareLevel>,
    /// The obstacle for a request of any size.
    pub obstacle: Option<GpuObstacle>,
    /// Says whether earlier requests in the queue could use it.
    pub is_queued: bool,
}

/// A slice with seats.
#[derive(Debug, Clone, Copy)]
pub struct CandidateSlice<'a> {
    /// Its profile.
    pub profile: &'a Profile,
    /// Its place.
    pub at: Placement,
    /// Says whether the slice exists. Another create makes it otherwise.
    pub is_ready: bool,
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

/// A request that gets nothing now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// The request.
    pub wanted: Wanted,
    /// The indexes of the GPUs that are free for it: too few.
    pub free: Vec<u32>,
    /// The other GPUs, or the slices with seats, each with its obstacle.
    pub taken: Vec<(String, GpuObstacle)>,
    /// The driver's errors for GPUs that it cannot read.
    pub unreadable: Vec<String>,
    /// The GPUs for which the request may wait: those that are free, or may become free.
    pub awaited: Vec<GpuUuid>,
    /// Why there is no new slice, for a request that may need one.
    pub no_slice: Option<Rejection>,
}

impl GpuObstacle {
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
}

impl Candidate<'_> {
    /// Returns a GPU of which nothing is known yet.
    pub fn new(gpu: &Gpu) -> Candidate<'_> {
        Candidate {
            gpu,
            slice: None,
            memory_mib: None,
            free_mib: 0,
            foreign_mib: 0,
            holders: Vec::new(),
            level: None,
            obstacle: None,
            is_queued: false,
        }
    }

    fn title(&self) -> String {
        let gpu = self.gpu.index;
        match &self.slice {
            Some(slice) => format!("{} at {} on GPU {gpu}", slice.profile.name, slice.at),
            None => format!("GPU {gpu}"),
        }
    }
}

impl NoRoom {
    /// Returns the answer to a request for slices.
    pub fn of_slices(slices: Slices, rejection: Rejection) -> Box<NoRoom> {
        let mut no = NoRoom::new(Wanted::Slices(slices));
        no.no_slice = Some(rejection);
        no
    }

    /// Joins the answers to two alternatives of a request for slices.
    pub(crate) fn joined(mut self: Box<Self>, other: NoRoom) -> Box<NoRoom> {
        let both = self.no_slice.into_iter().chain(other.no_slice);
        self.no_slice = Some(Rejection::of_all(both.collect()));
        self
    }

    fn new(wanted: Wanted) -> Box<NoRoom> {
        Box::new(NoRoom {
            wanted,
            free: Vec::new(),
            taken: Vec::new(),
            unreadable: Vec::new(),
            awaited: Vec::new(),
            no_slice: None,
        })
    }

    /// Returns the answer to a request that finds too few of these. `obstacle`: that of one of them for the request.
    pub(super) fn among(
        wanted: Wanted,
        candidates: &[Candidate<'_>],
        obstacle: impl Fn(&Candidate<'_>) -> Option<GpuObstacle>,
    ) -> Box<NoRoom> {
        let mut no = NoRoom::new(wanted);
        for one in candidates {
            let why = obstacle(one);
            if why.as_ref().is_none_or(GpuObstacle::may_pass) {
                no.awaited.push(one.gpu.uuid.clone());
            }
            match why {
                Some(why) => no.taken.push((one.title(), why)),
                None => no.free.push(one.gpu.index),
            }
        }
        no
    }

    /// Adds the GPUs that the driver cannot read.
    pub fn beside(mut self: Box<Self>, unreadable: &[(u32, String)]) -> Box<NoRoom> {
        self.unreadable = unreadable.iter().map(|(_, why)| why.clone()).collect();
        self
    }

    /// Returns how many GPUs are free or may become free. One that cannot be read may be free once it can.
    pub fn within_reach(&self) -> usize {
        let passing = self.taken.iter().filter(|(_, why)| why.may_pass());
        self.free.len() + self.unreadable.len() + passing.count()
    }

    fn needed(&self) -> usize {
        match self.wanted {
            Wanted::Gpus(count) => count as usize,
            Wanted::Slices(_) | Wanted::Share(_) | Wanted::Seat(_) => 1,
        }
    }

    /// Says whether a wait may help.
    pub fn may_pass(&self) -> bool {
        self.no_slice.as_ref().is_some_and(Rejection::may_pass)
            || self.within_reach() >= self.needed()
    }

    /// Says whether a process without a lease is in the way, or an answer of the driver is missing. No event
    /// tells the end of either.
    pub fn has_foreign(&self) -> bool {
        self.taken.iter().any(|(_, why)| match why {
            GpuObstacle::Used(GpuUse::Foreign { .. } | GpuUse::Unknown { .. }) => true,
            GpuObstacle::Full { foreign_mib, .. } => *foreign_mib > 0,
            _ => false,
        })
    }

    /// Returns the end of a create that does not wait. It is queued if all that is missing is reserved for earlier requests.
    pub fn outcome(&self) -> Outcome {
        if let (Wanted::Slices(_), Some(rejection)) = (&self.wanted, &self.no_slice) {
            return rejection.outcome();
        }
        let is_queued = |taken: &&(String, GpuObstacle)| taken.1 == GpuObstacle::Queued;
        let queued = self.taken.iter().filter(is_queued).count();
        match self.may_pass() {
            false => Outcome::Unsatisfiable,
            true if self.free.len() + queued >= self.needed() => Outcome::Queued,
            true => Outcome::Full,
        }
    }
}
