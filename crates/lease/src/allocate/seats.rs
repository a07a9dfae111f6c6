//! Plans a request for a seat: in a slice that has seats and room, else in a new one.

use super::admit::{Limits, Machine};
use super::found::{Denial, Found, Piece, Placed, Step, share};
use super::levels::Levels;
use super::plan::Planner;
use super::requester::Tried;
use crate::gpu::Queries;
use crate::inventory::SeatSlice;
use crate::model::{Gpu, GpuUuid};
use crate::placement::{
    Admitted, Candidate, CandidateSlice, Constraints, GpuObstacle, GpuUse, NoRoom, Over, Rejection,
    Reservation, ShareLevel, ShareMemory, ShareTerms,
};
use crate::policy::{Kind, Policy};
use crate::request::{Alternative, Seat, ShareSize};
use crate::store::{InstanceState, Resource};
use crate::{idle, refusal};
use std::cell::RefCell;

/// A request for a seat, and all that it depends on.
pub(super) struct Seats<'l, 'm, D> {
    machine: &'l Machine<'m, D>,
    seat: &'l Seat,
    asked: &'l Admitted,
    levels: &'l Levels,
    /// The level of each GPU that was asked. A second answer of the driver could be another one.
    known: RefCell<Vec<(GpuUuid, Result<ShareLevel, GpuObstacle>)>>,
    /// The slices with seats.
    slices: Vec<SeatSlice<'m>>,
    /// The same slices on trial.
    candidates: Vec<Candidate<'m>>,
}

impl<'l, 'm, D: Queries> Seats<'l, 'm, D> {
    pub(super) fn new(
        machine: &'l Machine<'m, D>,
        seat: &'l Seat,
        asked: &'l Admitted,
        levels: &'l Levels,
    ) -> Self {
        let mut seats = Seats {
            machine,
            seat,
            asked,
            levels,
            known: RefCell::default(),
            slices: Vec::new(),
            candidates: Vec::new(),
        };
        let all = machine.inventory.seat_slices().into_iter();
        let on_trial = all.filter_map(|slice| Some((seats.candidate(&slice)?, slice)));
        (seats.candidates, seats.slices) = on_trial.unzip();
        seats
    }

    /// Plans the first of the alternatives and sizes that can be had. A slice that has seats comes before a new one. No
    /// idle slice makes way for a new one while a later alternative or size has room in a slice that has seats.
    pub(super) fn plan(&self, tried: &Tried) -> Result<Found<'m>, Denial<Box<NoRoom>>> {
        let limits = self.machine.limits();
        let limits = limits.for_share()?;
        let limit = |mib| limits.over(mib);
        let terms = self.levels.of_sizes(&self.seat.sizes, &limit);
        let mut candidates = self.candidates.clone();
        for (on, slice) in candidates.iter_mut().zip(&self.slices) {
            let mut late = tried.late.iter();
            if slice.instance.state != InstanceState::Ready
                && let Some(late) = late.find(|late| late.slice == slice.instance.id)
            {
                let why = late.why.clone();
                on.obstacle = Some(GpuObstacle::Used(GpuUse::Unknown { why }));
            }
        }
        let wanted = self.asked.wanted();
        let (mut noes, mut evicting, mut over) = (Vec::new(), None, None);
        for asked in &self.asked.alternatives {
            let mut no = None;
            let one = wanted.of(&asked.slice);
            for size in &self.seat.sizes {
                if let Some((n, memory)) = terms.choose_seat(&candidates, *size, &one) {
                    return Ok(self.join(n, memory));
                }
                if evicting.is_some() {
                    continue;
                }
                match self.new_slice(asked, *size, &one, &terms, tried) {
                    Ok(Found::Pieces(place, idle)) if !idle.is_empty() => {
                        evicting = Some(Found::Pieces(place, idle));
                    }
                    Ok(found) => return Ok(found),
                    // The first size that may be had one day tells more than one that may not.
                    Err(Denial::Room(_)) if no.as_ref().is_some_and(Rejection::may_pass) => {}
                    Err(Denial::Room(why)) => no = Some(why),
                    Err(Denial::Limit(e)) => over = over.or(Some(e)),
                }
            }
            noes.extend(no);
        }
        if let Some(found) = evicting {
            return Ok(found);
        }
        let mut no_slice = Rejection::of_all(noes);
        no_slice.name(|slot| self.machine.inventory.named_at(slot));
        let no = terms.no_seat(self.seat, &candidates, &wanted, no_slice);
        // As for slices: a request above a limit is not queued.
        Err(match over {
            Some(e) if !no.may_pass() => Denial::Limit(e),
            _ => limits.denial(no),
        })
    }

    /// Returns the profiles of the slices in which the request could ever have its seat.
    pub(super) fn could_use(&self) -> Vec<Reservation> {
        let snapshot = &self.machine.inventory.snapshot;
        let nobody = self.machine.limits_of_nobody();
        let limit = |mib: u64| {
            let words = nobody.allow(Kind::Share, 1, mib).err()?.to_string();
            let is_final = true;
            Some(Over { words, is_final })
        };
        let terms = self.levels.of_sizes(&self.seat.sizes, &limit);
        // The limits of slices do not count for a seat.
        let unlimited = Policy::default();
        let limits = Limits::new(&unlimited, self.machine.subject.clone(), Vec::new());
        let wanted = self.asked.wanted();
        let of_one = |asked: &Alternative| {
            let level = |gpu: &Gpu| self.level(gpu);
            let unfit = in_words(terms.unfit(snapshot, &asked.slice, &wanted, level));
            let wanted = Constraints {
                unfit: &unfit,
                ..wanted
            };
            limits.could_use(snapshot, asked, &wanted)
        };
        self.asked.alternatives.iter().flat_map(of_one).collect()
    }

    /// Returns the slices with seats that the request could have.
    pub(super) fn asked(&self) -> Vec<Candidate<'m>> {
        let wanted = self.asked.wanted();
        let asked = self.candidates.iter();
        asked.filter(|on| on.is_asked(&wanted)).cloned().collect()
    }

    /// Returns the obstacle of a slice with seats for a requester without limits.
    pub(super) fn obstacle(&self, on: &Candidate<'_>) -> Option<GpuObstacle> {
        let terms = self.levels.of_sizes(&self.seat.sizes, &|_| None);
        terms.seat_obstacle(on, &self.asked.wanted())
    }

    fn join(&self, n: usize, memory: ShareMemory) -> Found<'m> {
        let on = &self.slices[n];
        let place = Placed {
            portion: share(memory, on.level),
            on: on.instance.resource.clone(),
            beside: self.machine.inventory.leases_on(&on.instance.id).collect(),
            may_make: false,
        };
        match on.instance.state {
            InstanceState::Ready => Found::Pieces(vec![Piece::Placed(place)], Vec::new()),
            _ => Found::PeerCreates(Box::new(place), on.peer),
        }
    }

    /// Plans a new slice with a seat of one size.
    fn new_slice(
        &self,
        asked: &Alternative,
        size: ShareSize,
        wanted: &Constraints<'_>,
        terms: &ShareTerms<'_>,
        tried: &Tried,
    ) -> Result<Found<'m>, Denial> {
        let inventory = self.machine.inventory;
        let snapshot = &inventory.snapshot;
        let level = |gpu: &Gpu| self.level(gpu);
        let sizes = &[size];
        let of_size = ShareTerms { sizes, ..*terms };
        let unfit = of_size.unfit(snapshot, &asked.slice, wanted, level);
        let locked = tried.late.iter().filter_map(|late| late.locked.clone());
        let unfit = in_words(unfit).into_iter().chain(locked);
        let unfit: Vec<(GpuUuid, String)> = unfit.chain(wanted.unfit.iter().cloned()).collect();
        // A seat counts as a share. A limit that does not name shares was written before there were seats, and counts
        // the whole slice.
        let limits = self.machine.config.policy.limit.iter();
        let strict = Policy {
            limit: limits.filter(|l| l.shares.is_none()).cloned().collect(),
            ..Policy::default()
        };
        let limits = Limits::new(&strict, self.machine.subject.clone(), inventory.usage());
        let wanted = &Constraints {
            unfit: &unfit,
            ..*wanted
        };
        let planner = |tried| Planner {
            inventory,
            wanted,
            limits: &limits,
            tried,
            adopts: false,
        };
        let spares_idle = Tried {
            idle: inventory.usable_idle().map(|i| i.id.clone()).collect(),
            refused: tried.refused.clone(),
            ..Tried::default()
        };
        let mut plan = match planner(&spares_idle).plan_one(asked) {
            Err(_) if !spares_idle.idle.is_empty() => planner(tried).plan_one(asked)?,
            planned => planned?,
        };
        let placed = plan.steps.pop().and_then(|step| {
            let slice = match step {
                Step::Create(slice) => slice,
                // An idle slice is not for seats, and the new one takes its place.
                Step::Reuse(idle, slice) => {
                    plan.evict.push(*idle);
                    slice
                }
                Step::Adopt(..) => return None,
            };
            let gpu = snapshot.gpu(&slice.gpu_uuid)?;
            let (profile, level) = (gpu.profile(slice.profile_id)?, self.level(gpu).ok()?);
            let memory = terms.in_new(gpu, profile, Ok(level), size).ok()?;
            Some(Placed {
                portion: share(memory, level.level),
                ..Placed::all(Resource::Mig(slice))
            })
        });
        match placed {
            Some(placed) => Ok(Found::Pieces(vec![Piece::Placed(placed)], plan.evict)),
            None => Err(Rejection::of_all(Vec::new()).into()),
        }
    }

    fn level(&self, gpu: &Gpu) -> Result<ShareLevel, GpuObstacle> {
        let mut known = self.known.borrow_mut();
        if let Some((_, level)) = known.iter().find(|(uuid, _)| *uuid == gpu.uuid) {
            return level.clone();
        }
        let level = self.levels.of_gpu(self.machine.driver, gpu);
        known.push((gpu.uuid.clone(), level.clone()));
        level
    }

    /// Returns a slice with seats on trial. None on a GPU that the driver does not show.
    fn candidate(&self, on: &SeatSlice<'_>) -> Option<Candidate<'m>> {
        let snapshot = &self.machine.inventory.snapshot;
        let gpu = snapshot.gpu(&on.slice.gpu_uuid)?;
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
        Some(Candidate {
            slice: Some(CandidateSlice {
                profile,
                at: on.slice.placement,
                is_ready: on.instance.state == InstanceState::Ready,
            }),
            memory_mib: Some(on.slice.memory_mib),
            free_mib: on.slice.memory_mib.saturating_sub(on.booked_mib),
            holders: on.holders.clone(),
            level,
            obstacle,
            ..Candidate::new(gpu)
        })
    }
}

fn in_words(unfit: Vec<(GpuUuid, GpuObstacle)>) -> Vec<(GpuUuid, String)> {
    let unfit = unfit.into_iter();
    unfit
        .map(|(gpu, why)| (gpu, refusal::gpu_obstacle(&why)))
        .collect()
}
