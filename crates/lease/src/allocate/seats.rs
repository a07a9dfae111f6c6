//! Plans a request for a seat, or tries it without a plan: in a slice that has seats and room, else in a new one.

use super::admit::{Limits, admit};
use super::denial::Denial;
use super::levels::{Levels, NoLevel};
use super::plan::{Planner, Step};
use super::requester::{Late, Tried};
use super::shares::Terms;
use super::usable_plan;
use crate::admitted::Admitted;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::inventory::{Inventory, SeatSlice};
use crate::model::{Gpu, GpuUuid, InstanceId, Level, Placement};
use crate::placement::{
    Constraints, GpuObstacle, GpuUse, Over, Rejection, SeatCandidate, SeatShortage, SeatTerms,
    ShareCandidate, ShareLevel,
};
use crate::policy::{Policy, Subject};
use crate::refusal::{self, NoRoom};
use crate::request::{Alternative, Seat, ShareSize};
use crate::store::{Enforcement, Held, Instance, InstanceState, Share, Slice};
use crate::{idle, queue};
use std::cell::RefCell;

/// The way in which a seat is had.
pub(super) enum SeatPlan {
    /// In a slice that has seats.
    Join(Box<Join>),
    /// The same, but another create makes the slice now, which has this lease.
    PeerCreates(Box<Join>, Box<Held>),
    /// In a new slice, in whose place these idle ones lie.
    Create(Box<Slice>, Box<Share>, Vec<Instance>),
}

/// A seat in a slice that has seats.
pub(super) struct Join {
    /// The slice.
    pub slice: Slice,
    /// Its instance.
    pub instance: InstanceId,
    /// The seat.
    pub share: Share,
}

/// A request for a seat, and all that it depends on.
pub(super) struct SeatPlanner<'a, D> {
    pub driver: &'a D,
    pub inventory: &'a Inventory,
    pub policy: &'a Policy,
    pub subject: Subject,
    pub seat: &'a Seat,
    pub terms: Terms<'a>,
    /// The level of each GPU that was asked. A second answer of the driver could be another one.
    pub levels: RefCell<Vec<(GpuUuid, Result<ShareLevel, GpuObstacle>)>>,
}

impl<D: Queries> SeatPlanner<'_, D> {
    /// Plans the first of the alternatives and sizes that can be had. A slice that has seats comes before a new one. No
    /// idle slice makes way for a new one while a later alternative or size has room in a slice that has seats.
    pub(super) fn plan(
        &self,
        (alternatives, wanted): (&[Alternative], &Constraints<'_>),
        tried: &Tried,
    ) -> Result<SeatPlan, Denial<SeatShortage>> {
        let limits = Limits::new(self.policy, self.subject.clone(), self.inventory);
        let limits = limits.for_share()?;
        let limit = |mib| limits.over(mib);
        let terms = SeatTerms {
            most: self.terms.most,
            limit: &limit,
        };
        let slices = self.inventory.seat_slices();
        let on_trial = |slice| {
            let mut on = self.candidate(slice)?;
            let is_it = |late: &&Late| late.slice == slice.instance.id;
            if let Some(late) = tried.late.iter().find(is_it).filter(|_| !on.is_ready) {
                on.on.obstacle = Some(late.obstacle());
            }
            Some((on, slice))
        };
        let (candidates, slices): (Vec<_>, Vec<_>) = slices.iter().filter_map(on_trial).unzip();
        let (mut noes, mut evicting) = (Vec::new(), None);
        for asked in alternatives {
            let mut no = None;
            for size in &self.seat.sizes {
                let one = Constraints {
                    alternatives: std::slice::from_ref(&asked.slice),
                    ..*wanted
                };
                if let Some((n, fit)) = terms.choose(&candidates, (&asked.slice, *size), &one) {
                    return Ok(join(slices[n], fit));
                }
                if evicting.is_some() {
                    continue;
                }
                match self.new_slice(asked, *size, (&one, &terms), tried) {
                    Ok(SeatPlan::Create(slice, share, idle)) if !idle.is_empty() => {
                        evicting = Some(SeatPlan::Create(slice, share, idle));
                    }
                    Ok(plan) => return Ok(plan),
                    // The first size that may be had one day tells more than one that may not.
                    Err(Denial::Room(_)) if matches!(no, Some(Rejection::NoCapacity(_))) => {}
                    Err(Denial::Room(why)) => no = Some(why),
                    Err(Denial::Limit(over)) => return Err(Denial::Limit(over)),
                }
            }
            noes.extend(no);
        }
        if let Some(plan) = evicting {
            return Ok(plan);
        }
        let shortage = SeatShortage {
            wanted: self.seat.clone(),
            taken: terms.taken(&candidates, self.seat, wanted),
            rejection: Rejection::of_all(noes),
        };
        let may_pass = shortage.may_pass();
        Err(limits.denial(shortage, may_pass))
    }

    /// Returns the profiles of the slices in which the request could ever have its seat, by GPU.
    pub(super) fn could_use(&self, admitted: &Admitted) -> Vec<(GpuUuid, Vec<u32>)> {
        let snapshot = &self.inventory.snapshot;
        let nobody = Limits::without_usage(self.policy, self.subject.clone());
        let limit = |mib: u64| {
            let words = nobody.allow_share(mib).err()?.to_string();
            let is_final = true;
            Some(Over { words, is_final })
        };
        let terms = SeatTerms {
            most: self.terms.most,
            limit: &limit,
        };
        // The limits of slices do not count for a seat.
        let policy = Policy {
            limit: Vec::new(),
            ..self.policy.clone()
        };
        let mut all: Vec<(GpuUuid, Vec<u32>)> = Vec::new();
        for asked in &admitted.alternatives {
            let sizes = (&asked.slice, self.seat.sizes.as_slice());
            let level = |gpu: &Gpu| self.level(gpu);
            let unfit = terms.unfit(snapshot, sizes, &admitted.wanted(), level);
            let one = Admitted {
                alternatives: vec![asked.clone()],
                slices: vec![asked.slice.clone()],
                min_compute: admitted.min_compute,
                excluded: [admitted.excluded.clone(), in_words(unfit)].concat(),
                denied_profiles: admitted.denied_profiles.clone(),
            };
            let subject = (&policy, self.subject.clone());
            for (gpu, profiles) in usable_plan::could_use(subject, snapshot, &one) {
                match all.iter_mut().find(|(other, _)| *other == gpu) {
                    Some((_, known)) => {
                        known.extend(profiles);
                        known.sort_unstable();
                        known.dedup();
                    }
                    None => all.push((gpu, profiles)),
                }
            }
        }
        all
    }

    /// Plans a new slice with a seat of one size.
    fn new_slice(
        &self,
        asked: &Alternative,
        size: ShareSize,
        (wanted, terms): (&Constraints<'_>, &SeatTerms<'_>),
        tried: &Tried,
    ) -> Result<SeatPlan, Denial<Rejection>> {
        let snapshot = &self.inventory.snapshot;
        let level = |gpu: &Gpu| self.level(gpu);
        let unfit = terms.unfit(snapshot, (&asked.slice, &[size]), wanted, level);
        let locked = tried.late.iter().filter_map(|late| late.locked.clone());
        let unfit: Vec<(GpuUuid, String)> = in_words(unfit).into_iter().chain(locked).collect();
        // A seat counts as a share. A limit that does not name shares was written before there were seats, and counts
        // the whole slice.
        let mut strict = Policy::default();
        let without_shares = self.policy.limit.iter().filter(|l| l.shares.is_none());
        strict.limit.extend(without_shares.cloned());
        let planner = Planner {
            inventory: self.inventory,
            wanted: &Constraints {
                unfit: &unfit,
                ..*wanted
            },
            limits: &Limits::new(&strict, self.subject.clone(), self.inventory),
            tried,
            adopts: false,
        };
        let mut plan = planner.plan_one(asked)?;
        let slice = match plan.steps.pop() {
            Some(Step::Create(slice)) => slice,
            // An idle slice is not for seats, and the new one takes its place.
            Some(Step::Reuse(idle, slice)) => {
                plan.evict.push(*idle);
                slice
            }
            Some(Step::Adopt(..)) | None => return Err(Rejection::of_all(Vec::new()).into()),
        };
        let gpu = snapshot.gpus.iter().find(|gpu| gpu.uuid == slice.gpu_uuid);
        let on = gpu.and_then(|gpu| Some((gpu, gpu.profile(slice.profile_id)?)));
        let fit = on.and_then(|(gpu, profile)| {
            let level = self.level(gpu);
            let fit = terms.in_new((gpu, profile), level.clone(), size).ok()?;
            Some((fit, level.ok()?.level))
        });
        let Some(((memory_mib, booked_mib), level)) = fit else {
            return Err(Rejection::of_all(Vec::new()).into());
        };
        let share = Box::new(Share {
            memory_mib,
            booked_mib,
            enforcement: Enforcement::new(level),
        });
        Ok(SeatPlan::Create(Box::new(slice), share, plan.evict))
    }

    fn level(&self, gpu: &Gpu) -> Result<ShareLevel, GpuObstacle> {
        let mut levels = self.levels.borrow_mut();
        if let Some((_, known)) = levels.iter().find(|(uuid, _)| *uuid == gpu.uuid) {
            return known.clone();
        }
        let level = { self.terms.of_gpu(self.driver, gpu) }.map_err(|no| match no {
            NoLevel::Impossible(reasons) => GpuObstacle::NoLevel(reasons),
            NoLevel::Unknown(why) => GpuObstacle::Used(GpuUse::Unknown { why }),
        });
        levels.push((gpu.uuid.clone(), level.clone()));
        level
    }

    /// Returns a slice with seats on trial. None on a GPU that the driver does not show.
    pub(super) fn candidate<'c>(&'c self, on: &SeatSlice<'_>) -> Option<SeatCandidate<'c>> {
        let snapshot = &self.inventory.snapshot;
        let gpu = snapshot.gpus.iter().find(|g| g.uuid == on.slice.gpu_uuid)?;
        let profile = gpu.profile(on.slice.profile_id)?;
        let is_there =
            on.instance.state == InstanceState::Creating || idle::is_there(snapshot, on.instance);
        let (level, obstacle) = match self.level(gpu) {
            _ if !is_there => {
                let why = "the driver does not show it".to_owned();
                (None, Some(GpuObstacle::Used(GpuUse::Unknown { why })))
            }
            Ok(level) if level.level != on.level => {
                (Some(level), Some(GpuObstacle::OtherLevel(on.level)))
            }
            Ok(level) => (Some(level), None),
            Err(obstacle) => (None, Some(obstacle)),
        };
        Some(SeatCandidate {
            on: ShareCandidate {
                gpu,
                memory_mib: Some(on.slice.memory_mib),
                free_mib: on.slice.memory_mib.saturating_sub(on.booked_mib),
                foreign_mib: 0,
                holders: on.holders.clone(),
                level,
                obstacle,
                is_queued: false,
            },
            profile,
            at: on.slice.placement,
            is_ready: on.instance.state == InstanceState::Ready,
        })
    }
}

fn join(on: &SeatSlice<'_>, (memory_mib, booked_mib): (u64, u64)) -> SeatPlan {
    let join = Box::new(Join {
        slice: on.slice.clone(),
        instance: on.instance.id.clone(),
        share: Share {
            memory_mib,
            booked_mib,
            enforcement: Enforcement::new(on.level),
        },
    });
    match on.instance.state {
        InstanceState::Ready => SeatPlan::Join(join),
        _ => SeatPlan::PeerCreates(join, Box::new(on.peer.clone())),
    }
}

fn in_words(unfit: Vec<(GpuUuid, GpuObstacle)>) -> Vec<(GpuUuid, String)> {
    let unfit = unfit.into_iter();
    unfit
        .map(|(gpu, why)| (gpu, refusal::gpu_obstacle(&why)))
        .collect()
}

/// The answer that a create for a seat would get now.
pub struct SeatTrial {
    /// The slices with seats that the request could have.
    pub slices: Vec<SeatOnTrial>,
    /// The outcome of the request.
    pub outcome: SeatOutcome,
}

/// A slice with seats in such an answer.
pub struct SeatOnTrial {
    /// The driver's index of its GPU.
    pub gpu_index: u32,
    /// The UUID of its GPU.
    pub gpu_uuid: GpuUuid,
    /// The name of its profile.
    pub profile: String,
    /// Its place.
    pub placement: Placement,
    /// The memory that it gives out, in MiB.
    pub memory_mib: u64,
    /// The memory that is left of it, in MiB.
    pub free_mib: u64,
    /// The level of its seats.
    pub level: Option<Level>,
    /// The number of its seats.
    pub seats: usize,
    /// The obstacle for all of the requested sizes, if there is one.
    pub obstacle: Option<GpuObstacle>,
}

/// The outcome of a request for a seat.
pub enum SeatOutcome {
    /// The request gets this share of this slice.
    Fits {
        /// The slice.
        slice: Box<Slice>,
        /// The seat.
        share: Share,
        /// Says whether the slice is made for it.
        is_new: bool,
    },
    /// The request exceeds a limit.
    Limited(Error),
    /// No slice has room.
    No(SeatShortage),
}

/// Answers a request for a seat, and writes nothing.
///
/// # Errors
/// The policy forbids the request, or no permitted level is possible.
pub fn try_seat(
    (config, driver): (&Config, &impl Queries),
    inventory: &Inventory,
    (seat, subject): (&Seat, Subject),
) -> Result<SeatTrial> {
    let levels = Levels::new(config, None).for_seats();
    let terms = Terms::new(config, &levels)?;
    let inventory = &inventory.without_idle_over();
    let (policy, snapshot) = (&config.policy, &inventory.snapshot);
    let admitted = admit(policy, snapshot, &seat.slices, &subject)?;
    let blockers = queue::reservations(&inventory.waiting);
    let ours = inventory.ours();
    let wanted = Constraints {
        blockers: &blockers,
        ours: &ours,
        ..admitted.wanted()
    };
    let planner = SeatPlanner {
        driver,
        inventory,
        policy,
        subject,
        seat,
        terms,
        levels: RefCell::default(),
    };
    let outcome = match planner.plan((&admitted.alternatives, &wanted), &Tried::default()) {
        Ok(SeatPlan::Create(slice, share, _)) => SeatOutcome::Fits {
            slice,
            share: *share,
            is_new: true,
        },
        Ok(SeatPlan::Join(join) | SeatPlan::PeerCreates(join, _)) => SeatOutcome::Fits {
            slice: Box::new(join.slice),
            share: join.share,
            is_new: false,
        },
        Err(Denial::Limit(over)) => SeatOutcome::Limited(over),
        Err(Denial::Room(no)) => SeatOutcome::No(no),
    };
    let no_limit = |_| None;
    let terms = SeatTerms {
        most: terms.most,
        limit: &no_limit,
    };
    let slices = inventory.seat_slices();
    let on_trial = |on| {
        let on = planner.candidate(on)?;
        let is_asked = on.is_asked(seat, &wanted);
        is_asked.then(|| SeatOnTrial {
            gpu_index: on.on.gpu.index,
            gpu_uuid: on.on.gpu.uuid.clone(),
            profile: on.profile.name.clone(),
            placement: on.at,
            memory_mib: on.on.memory_mib.unwrap_or_default(),
            free_mib: on.on.free_mib,
            level: on.on.level.map(|on| on.level),
            seats: on.on.holders.len(),
            obstacle: terms.obstacle(&on, seat, &wanted),
        })
    };
    Ok(SeatTrial {
        slices: slices.iter().filter_map(on_trial).collect(),
        outcome,
    })
}

/// Returns the error of a create with this shortage.
pub fn no_seat_error(shortage: SeatShortage, inventory: &Inventory) -> Error {
    NoRoom::Seat(shortage).error(&inventory.waiting, None)
}
