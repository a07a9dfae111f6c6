//! What a request finds outside of new slices: GPUs, and slices with seats, each with its obstacle; and the answer to a
//! request of any kind that gets nothing.

use super::gpu_obstacle::{GpuObstacle, GpuUse};
use super::plan::Constraints;
use super::rejection::Rejection;
use crate::counters::Outcome;
use crate::model::{Gpu, GpuUuid, Level, Placement, Profile, Snapshot};
use crate::request::{Slice, Slices, Wanted};

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

impl<'a> Candidate<'a> {
    /// Returns a GPU of which nothing is known yet.
    pub fn new(gpu: &'a Gpu) -> Candidate<'a> {
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

    /// Returns a new slice of a profile, for its first seat.
    pub(crate) fn new_slice(gpu: &'a Gpu, profile: &Profile, level: ShareLevel) -> Candidate<'a> {
        Candidate {
            memory_mib: Some(profile.memory_mib),
            free_mib: profile.memory_mib,
            level: Some(level),
            ..Candidate::new(gpu)
        }
    }

    /// Returns whether the slice is what one of the alternatives stands for on its GPU.
    pub(crate) fn is_asked(&self, constraints: &Constraints<'_>) -> bool {
        let is_it = |slice: &Slice| {
            let stands_for = constraints.profile_on(self.gpu, slice);
            stands_for.is_some_and(|p| self.slice.is_some_and(|of| of.profile.id == p.id))
        };
        !constraints.excludes(self.gpu) && constraints.alternatives.iter().any(is_it)
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
    pub(crate) fn among(
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
    pub(crate) fn beside(mut self: Box<Self>, snapshot: &Snapshot) -> Box<NoRoom> {
        let unreadable = snapshot.unreadable.iter();
        self.unreadable = unreadable.map(|(_, why)| why.clone()).collect();
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
