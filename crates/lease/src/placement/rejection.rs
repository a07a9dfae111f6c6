//! The answer to a request that gets no slot, as data. `lease::refusal` renders it to words.

use super::gpu_obstacle::GpuObstacle;
use super::occupancy::{Exhausted, Slot};
use super::plan::{DefragPlan, SearchResult};
use crate::counters::Outcome;
use crate::model::Profile;
use crate::request::{Alternative, Slice};

/// A request that gets no slot, with a cause for each of its alternatives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    causes: Vec<Cause>,
}

/// The obstacle of one alternative.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The alternative.
    pub request: Alternative,
    /// Slices of the alternative that found a slot before one found none.
    pub found: usize,
    /// The reason for its rejection.
    pub obstacle: Obstacle,
}

/// Why an alternative gets no slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// Rules exclude every GPU in MIG mode.
    GpusExcluded(LeftOut),
    /// No GPU that the driver lists supports MIG.
    NoMigGpu {
        /// The number of listed GPUs that can be read.
        gpus: usize,
        /// The GPUs that the request cannot use.
        left_out: LeftOut,
    },
    /// MIG is off on these GPUs, and on for none.
    MigOff {
        /// Their indexes.
        gpus: Vec<u32>,
        /// Those of them whose MIG mode the next reset switches on.
        pending: Vec<u32>,
        /// The other GPUs.
        left_out: LeftOut,
    },
    /// The requested profile has fewer compute slices than the request needs.
    FewComputeSlices {
        /// Compute slices of the profile.
        has: u32,
        /// Compute slices that the request needs.
        needed: u32,
    },
    /// No GPU offers the requested profile.
    UnknownProfile {
        /// The names of the allowed profiles, the nearest first.
        offered: Vec<String>,
    },
    /// No profile has the requested memory.
    TooMuchMemory {
        /// The compute slices that the request needs as well, or 0.
        needed_compute: u32,
        /// Says whether rules deny some profiles.
        is_restricted: bool,
        /// The largest allowed profile, if there is one.
        largest: Option<Profile>,
    },
    /// The GPUs hold fewer slices of the profile than the request counts, even when they are empty.
    TooMany {
        /// The number of GPUs that offer the profile.
        gpus: usize,
        /// The name of the profile.
        profile: String,
        /// The number of slices that the empty GPUs hold.
        most: u32,
    },
    /// All free slots of the profile are reserved for earlier requests.
    Reserved {
        /// The name of the profile.
        profile: String,
    },
    /// No slot of the profile is free.
    NoSlot(Box<Shortage>),
}

/// The GPUs that a request cannot use, whatever is free on them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The index of each GPU in MIG mode that is left out, with the reason.
    pub excluded: Vec<(u32, GpuObstacle)>,
    /// The driver's errors for GPUs that it cannot read.
    pub unreadable: Vec<String>,
}

/// The state of the GPUs that offer the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shortage {
    /// The profile that the request stands for on the first of these GPUs.
    pub profile: String,
    /// The number of these GPUs.
    pub gpus: usize,
    /// Their free memory slices.
    pub free_slices: u32,
    /// All their memory slices.
    pub total_slices: u32,
    /// The free memory slices of the GPU that has most of them.
    pub most_free: u32,
    /// The memory slices of one slot, on the GPU where it takes the fewest.
    pub needed: u32,
    /// GPUs that have enough free memory slices, and lack something else.
    pub exhausted: Vec<Exhaustion>,
    /// Memory slices of instances that runmig could not destroy.
    pub quarantined: u32,
    /// The other GPUs.
    pub left_out: LeftOut,
    /// What keeps the profile from each of these GPUs, the least first.
    pub in_the_way: Vec<InTheWay>,
    /// The search for moves that make room, if runmig made one.
    pub search: Option<SearchResult>,
}

/// The fewest instances whose end would make room on one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InTheWay {
    /// The index of the GPU.
    pub gpu: u32,
    /// The instances.
    pub slots: Vec<Slot>,
    /// Their holders in words, once somebody who has the ledger named them.
    pub names: Vec<String>,
    /// Says whether all of them end without an administrator.
    pub ends: bool,
}

/// A GPU that reached a limit for its profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhaustion {
    /// The index of the GPU.
    pub gpu: u32,
    /// The name of the profile on this GPU.
    pub profile: String,
    /// The limit.
    pub what: Exhausted,
}

impl Cause {
    /// Returns the slice that found no slot.
    pub fn slice(&self) -> &Slice {
        let slice = self.request.all().nth(self.found);
        slice.unwrap_or(&self.request.slice)
    }
}

impl Rejection {
    /// Returns the rejection of a request of whose slices so many found a slot.
    pub(crate) fn of(request: &Alternative, found: usize, obstacle: Obstacle) -> Rejection {
        let request = request.clone();
        let cause = Cause {
            request,
            found,
            obstacle,
        };
        Rejection {
            causes: vec![cause],
        }
    }

    /// Joins the rejections of several alternatives. Waiting helps where it helps one of them.
    pub fn of_all(rejections: Vec<Rejection>) -> Rejection {
        let causes = rejections.into_iter().flat_map(|one| one.causes);
        Rejection {
            causes: causes.collect(),
        }
    }

    /// Returns the causes, one for each rejected alternative.
    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// Says whether a slot of at least one alternative may become free. Else the machine, the rules or the request exclude
    /// every alternative for good, and no wait helps.
    pub fn may_pass(&self) -> bool {
        self.causes.iter().any(|cause| cause.obstacle.may_pass())
    }

    /// Returns the cause to act on: the first that may pass, or else the first.
    pub(crate) fn main_cause(&self) -> Option<&Cause> {
        let may_pass = |cause: &&Cause| cause.obstacle.may_pass();
        let mut causes = self.causes().iter();
        causes.clone().find(may_pass).or(causes.next())
    }

    /// Returns the shortages of the rejected alternatives, for others to complete.
    pub(super) fn shortages_mut(&mut self) -> impl Iterator<Item = &mut Shortage> {
        let causes = self.causes.iter_mut();
        causes.filter_map(|cause| match &mut cause.obstacle {
            Obstacle::NoSlot(shortage) => Some(&mut **shortage),
            _ => None,
        })
    }

    /// Names the instances in the way.
    pub(crate) fn name(&mut self, name: impl Fn(&Slot) -> String) {
        for one in self.shortages_mut().flat_map(|no| &mut no.in_the_way) {
            one.names = one.slots.iter().map(&name).collect();
        }
    }

    /// Returns the end of a create that does not wait. Its room is fragmented where a move of other slices helps, or the search
    /// for one gave up.
    pub fn outcome(&self) -> Outcome {
        match self.main_cause().map(|cause| &cause.obstacle) {
            Some(Obstacle::Reserved { .. }) => Outcome::Queued,
            Some(Obstacle::NoSlot(shortage)) => match &shortage.search {
                Some(SearchResult::Plan(_) | SearchResult::Beyond(_)) => Outcome::Fragmented,
                _ => Outcome::Full,
            },
            Some(of) if of.may_pass() => Outcome::Full,
            _ => Outcome::Unsatisfiable,
        }
    }

    /// Returns the moves that make room, if a search found some.
    pub fn plan(&self) -> Option<&DefragPlan> {
        match &self.main_cause()?.obstacle {
            Obstacle::NoSlot(shortage) => shortage.plan(),
            _ => None,
        }
    }
}

#[cfg(test)]
impl From<Cause> for Rejection {
    fn from(cause: Cause) -> Rejection {
        Rejection {
            causes: vec![cause],
        }
    }
}

impl Obstacle {
    /// Says whether a slice or a GPU that comes back may remove the obstacle.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Obstacle::Reserved { .. } | Obstacle::NoSlot(_) => true,
            Obstacle::GpusExcluded(left_out)
            | Obstacle::NoMigGpu { left_out, .. }
            | Obstacle::MigOff { left_out, .. } => {
                left_out.closed().is_some() || !left_out.unreadable.is_empty()
            }
            _ => false,
        }
    }
}

impl LeftOut {
    /// Returns the remedy of the first GPU that gives nothing new now.
    pub(crate) fn closed(&self) -> Option<&str> {
        self.excluded.iter().find_map(|(_, why)| why.remedy())
    }

    /// Says whether a rule leaves out a GPU.
    pub(crate) fn has_rule(&self) -> bool {
        let mut excluded = self.excluded.iter();
        excluded.any(|(_, why)| matches!(why, GpuObstacle::Excluded(_)))
    }

    /// Says whether the next reset switches MIG off on all of them.
    pub(crate) fn ends_mig(&self) -> bool {
        let mut excluded = self.excluded.iter();
        excluded.all(|(_, why)| *why == GpuObstacle::EndsMig)
    }
}

impl Shortage {
    /// Returns the moves that make room, if a search found some.
    pub fn plan(&self) -> Option<&DefragPlan> {
        match self.search.as_ref()? {
            SearchResult::Plan(plan) => Some(plan),
            _ => None,
        }
    }
}
