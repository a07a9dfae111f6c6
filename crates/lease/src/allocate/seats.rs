//! Plans a request for a seat: in a slice that has seats and room, else in a new one.

use super::admit::{Limits, Machine};
use super::found::{Denial, Found, Piece, Placed, Step, share};
use super::levels::Levels;
use super::plan::Planner;
use super::requester::Tried;
use crate::gpu::Queries;
use crate::model::{Gpu, GpuUuid};
use crate::placement::{
    self, Admitted, Backfill, Candidate, CandidateSlice, Constraints, GpuObstacle, NoRoom, Over,
    Rejection, Reservation, ShareLevel, ShareMemory, ShareTerms,
};
use crate::policy::{Kind, Policy};
use crate::request::{Alternative, Seat, ShareSize, Slice, Wanted};
use crate::store::{Held, Instance, InstanceState, LeaseState, Resource};
use crate::{idle, refusal};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A request for a seat, and all that it depends on.
pub(super) struct Seats<'l, 'm, D> {
    machine: &'l Machine<'m, D>,
    pub seat: &'l Seat,
    asked: &'l Admitted,
    pub levels: &'l Levels,
    /// The level of each GPU that was asked. A second answer of the driver could be another one.
    known: RefCell<BTreeMap<GpuUuid, Result<ShareLevel, GpuObstacle>>>,
    /// The slices with seats.
    candidates: Vec<Candidate<'m>>,
    /// A lease in each of them that stays, beside which another is safe: the slice goes with the last.
    peers: Vec<&'m Held>,
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
            candidates: Vec::new(),
            peers: Vec::new(),
        };
        let all = machine.inventory.instances();
        (seats.candidates, seats.peers) = all.filter_map(|i| seats.candidate(i)).unzip();
        seats
    }

    /// Plans the first of the alternatives and sizes that can be had. A slice that has seats comes before a new one. No
    /// idle slice makes way for a new one while a later alternative or size has room in a slice that has seats.
    pub(super) fn plan(&self, tried: &Tried) -> Result<Found<'m>, Denial> {
        let limits = self.machine.limits();
        let limits = limits.for_share()?;
        let limit = |mib| limits.over(mib);
        let terms = self.levels.of_sizes(&self.seat.sizes, &limit);
        let mut candidates = self.candidates.clone();
        for (on, peer) in candidates.iter_mut().zip(&self.peers) {
            let mut late = tried.late.iter();
            if peer.instance.state != InstanceState::Ready
                && let Some(late) = late.find(|late| late.slice == peer.instance.id)
            {
                on.obstacle = Some(GpuObstacle::unknown(&late.why));
            }
        }
        let wanted = self.asked.wanted();
        let (mut noes, mut evicting, mut over) = (Vec::new(), None, None);
        for asked in &self.asked.alternatives {
            let mut no = None;
            let one = wanted.of(&asked.slice);
            let is_asked = |on: &Candidate<'_>| on.is_asked(&one);
            for size in &self.seat.sizes {
                if let Some((n, memory)) = terms.choose(&candidates, is_asked, *size) {
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
                    Err(Denial::Limit(e)) => over = Some(e),
                }
            }
            noes.extend(no);
        }
        if let Some(found) = evicting {
            return Ok(found);
        }
        let mut no_slice = Rejection::of_all(noes);
        no_slice.name(|slot| self.machine.inventory.named_at(slot));
        candidates.retain(|on| on.is_asked(&wanted));
        let wanted = Wanted::Seat(self.seat.clone());
        let mut no = NoRoom::among(wanted, &candidates, |on| terms.obstacle(on));
        no.no_slice = Some(no_slice);
        Err(limits.denial(over, no))
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
            let unfit = self.unfit(&terms, &asked.slice, &wanted);
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

    fn join(&self, n: usize, memory: ShareMemory) -> Found<'m> {
        let peer = self.peers[n];
        let instance = &peer.instance;
        let place = Placed {
            portion: share(memory),
            on: instance.resource.clone(),
            beside: self.machine.inventory.leases_on(&instance.id).collect(),
            may_make: false,
        };
        match instance.state {
            InstanceState::Ready => Found::Pieces(vec![Piece::Placed(place)], Vec::new()),
            _ => Found::PeerCreates(Box::new(place), peer),
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
    ) -> Result<Found<'m>, Denial<Rejection>> {
        let inventory = self.machine.inventory;
        let sizes = &[size];
        let of_size = ShareTerms { sizes, ..*terms };
        let mut unfit = self.unfit(&of_size, &asked.slice, wanted);
        unfit.extend(tried.late.iter().filter_map(|late| late.locked.clone()));
        unfit.extend_from_slice(wanted.unfit);
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
            let gpu = inventory.snapshot.gpu(&slice.gpu_uuid)?;
            let (profile, level) = (gpu.profile(slice.profile_id)?, self.level(gpu).ok()?);
            let on = Candidate::new_slice(gpu, profile, level);
            Some(Placed {
                portion: share(terms.place(&on, size).ok()?),
                ..Placed::all(Resource::Mig(slice))
            })
        });
        match placed {
            Some(placed) => Ok(Found::Pieces(vec![Piece::Placed(placed)], plan.evict)),
            None => Err(Denial::Room(Rejection::of_all(Vec::new()))),
        }
    }

    fn level(&self, gpu: &Gpu) -> Result<ShareLevel, GpuObstacle> {
        let mut known = self.known.borrow_mut();
        let level = known.entry(gpu.uuid.clone());
        let level = level.or_insert_with(|| self.levels.of_gpu(self.machine.driver, gpu));
        level.clone()
    }

    /// Returns the GPUs on which no new slice has room for a seat of any of the sizes, each with the obstacle in words.
    fn unfit(
        &self,
        terms: &ShareTerms<'_>,
        slice: &Slice,
        wanted: &Constraints<'_>,
    ) -> Vec<(GpuUuid, String)> {
        let usable = placement::usable(&self.machine.inventory.snapshot, wanted);
        let fitting = placement::fitting(&usable, slice, wanted).into_iter();
        let unfit = fitting.filter_map(|(gpu, profile)| {
            let why = match self.level(gpu) {
                Ok(level) => terms.obstacle(&Candidate::new_slice(gpu, profile, level))?,
                Err(why) => why,
            };
            Some((gpu.uuid.clone(), refusal::gpu_obstacle(&why)))
        });
        unfit.collect()
    }

    /// Returns a slice with seats on trial, and a lease in it that stays. None for an instance without seats or on its way
    /// out, and on a GPU that the driver does not show.
    fn candidate(&self, instance: &'m Instance) -> Option<(Candidate<'m>, &'m Held)> {
        let inventory = self.machine.inventory;
        let (snapshot, slice) = (&inventory.snapshot, instance.slice()?);
        let stays = |held: &&Held| held.lease.state != LeaseState::Releasing;
        let peer = inventory.leases_on(&instance.id).find(stays)?;
        let its_level = peer.lease.level()?;
        let is_ready = match instance.state {
            InstanceState::Creating => false,
            InstanceState::Ready => true,
            _ => return None,
        };
        let (mut holders, mut booked_mib) = (Vec::new(), 0);
        for held in inventory.leases_on(&instance.id) {
            holders.push(held.lease.holder.shown());
            booked_mib += held.lease.share()?.booked_mib;
        }
        let gpu = snapshot.gpu(&slice.gpu_uuid)?;
        let (profile, at) = (gpu.profile(slice.profile_id)?, slice.placement);
        let (level, obstacle) = match self.level(gpu) {
            _ if is_ready && !idle::is_there(snapshot, instance) => {
                let unknown = GpuObstacle::unknown("the driver does not show it");
                (None, Some(unknown))
            }
            Ok(level) if level.level != its_level => {
                (Some(level), Some(GpuObstacle::OtherLevel(its_level)))
            }
            Ok(level) => (Some(level), None),
            Err(obstacle) => (None, Some(obstacle)),
        };
        let on = Candidate {
            slice: Some(CandidateSlice {
                profile,
                at,
                is_ready,
            }),
            memory_mib: Some(slice.memory_mib),
            free_mib: slice.memory_mib.saturating_sub(booked_mib),
            holders,
            level,
            obstacle,
            // The slice stays longer with one more seat, in a place that an earlier request may wait for.
            is_queued: !Backfill::on(gpu, &self.asked.wanted()).permits(profile, at),
            ..Candidate::new(gpu)
        };
        Some((on, peer))
    }
}
