//! What a create gets: the slice of its pod; or, for each slice that it asks for, one that is there
//! already or a place where one can be made. All of them or none.

use super::acquire::{Applicant, Tried};
use super::adopt::{adoptable, usable};
use super::reuse::slot_of;
use super::rules::{Limits, Ruled, all_refused, memory_of};
use super::share::Peer;
use super::view::View;
use super::{Leases, Patience};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Inventory;
use crate::model::Snapshot;
use crate::placement::{self, Constraints, Decision, Rejection, Selection, Slot};
use crate::request::Alternative;
use crate::store::{Lease, Slice};

/// What there is for who asks; a lease in it is on record.
pub(super) enum Found {
    /// All that it asks for.
    Slices(Vec<Part>),
    /// The slice of another container of the pod.
    Shared(Lease),
    /// That one is not made yet.
    InTheMaking(Lease),
    /// Idle slices whose time is over, or whose room is needed: to be destroyed first.
    InTheWay(Vec<Lease>),
    Nothing(No),
}

/// One of the slices that a container asks for.
pub(super) enum Part {
    /// A place where it can be made.
    Room(Lease),
    /// It is there already: to be looked over; and how long it is tried to destroy it otherwise.
    Spare(Lease, Patience),
}

/// The same before it is on record.
pub(super) enum Choice<'a> {
    Make(Slice),
    Adopt(Slice),
    TakeOver(&'a Lease),
}

/// Why an alternative is none, or why none of them is one.
pub(super) enum No {
    Room(Rejection),
    Limit(Error),
}

impl No {
    /// Whether it would be another answer had somebody who is gone given back what he has.
    pub fn may_pass(&self) -> bool {
        !matches!(self, No::Room(Rejection::Unsatisfiable { .. }))
    }
}

impl From<Rejection> for No {
    fn from(no: Rejection) -> No {
        No::Room(no)
    }
}

impl From<Error> for No {
    fn from(e: Error) -> No {
        No::Limit(e)
    }
}

impl Leases<'_> {
    /// Under the plan's lock. What is put on record is added to `parts`, also where it comes to nothing.
    pub(super) fn find_room(
        &self,
        driver: &impl Inventory,
        view: &View,
        (ruled, wanted): (&Ruled, &Constraints<'_>),
        (who, tried): (&Applicant<'_>, &Tried),
        parts: &mut Vec<Part>,
    ) -> Result<Found> {
        match self.share(driver, (&view.snapshot, &view.leases), wanted, who)? {
            Some(Peer::Has(lease)) => return Ok(Found::Shared(*lease)),
            Some(Peer::Makes(peer)) => return Ok(Found::InTheMaking(*peer)),
            None => {}
        }
        let idle = match self.idle(&view.snapshot, &view.leases, &tried.idle) {
            Ok(idle) => idle,
            Err(over) => return Ok(Found::InTheWay(over)),
        };
        let search = Search {
            config: self.config,
            driver,
            snapshot: &view.snapshot,
            taken: &view.taken,
            wanted,
            limits: &self.limits(&view.snapshot, &view.leases, who.holder),
            tried,
            idle: &idle,
        };
        let (mut noes, mut over) = (Vec::new(), None);
        for asked in &ruled.alternatives {
            match search.choose(asked) {
                Ok((_, evicted)) if !evicted.is_empty() => return Ok(Found::InTheWay(evicted)),
                Ok((choices, _)) => return self.take(choices, who, parts),
                Err(No::Room(no)) => noes.push(no),
                Err(No::Limit(e)) => over = over.or(Some(e)),
            }
        }
        Ok(Found::Nothing(all_refused(noes, over)))
    }

    fn take(
        &self,
        choices: Vec<Choice<'_>>,
        who: &Applicant<'_>,
        parts: &mut Vec<Part>,
    ) -> Result<Found> {
        for choice in choices {
            parts.push(match choice {
                Choice::Adopt(slice) => Part::Spare(self.adopt(slice, who)?, Patience::NONE),
                Choice::TakeOver(idle) => match self.take_over(idle, who)? {
                    Some(lease) => Part::Spare(lease, Patience::with_idle(idle)),
                    // Its time was over meanwhile.
                    None => return Ok(Found::InTheWay(Vec::new())),
                },
                Choice::Make(slice) => {
                    let lease = self.draft(who, slice)?;
                    self.put_on_record(&lease, "is to be made")?;
                    Part::Room(lease)
                }
            });
        }
        Ok(Found::Slices(std::mem::take(parts)))
    }
}

pub(super) struct Search<'a, D> {
    pub config: &'a Config,
    pub driver: &'a D,
    pub snapshot: &'a Snapshot,
    /// What the ledger has promised.
    pub taken: &'a [Slot],
    pub wanted: &'a Constraints<'a>,
    pub limits: &'a Limits<'a>,
    pub tried: &'a Tried,
    pub idle: &'a [Lease],
}

impl<D: Inventory> Search<'_, D> {
    /// For each slice of one alternative; and the idle slices that lie where new ones are to be made.
    pub fn choose(&self, asked: &Alternative) -> Result<(Vec<Choice<'_>>, Vec<Lease>), No> {
        let (snapshot, count) = (self.snapshot, asked.count);
        let wanted = Constraints {
            alternatives: std::slice::from_ref(&asked.slice),
            ..*self.wanted
        };
        let least = self.limits.least_memory(snapshot, &wanted);
        self.limits.allow(count, u64::from(count) * least)?;
        if let Some(never) = placement::never_several(snapshot, asked, &wanted) {
            return Err(never.into());
        }
        let kept: Vec<Slot> = self.idle.iter().map(|l| slot_of(&l.slice)).collect();
        let mut reserved = self.taken.to_vec();
        reserved.retain(|r| !kept.contains(r));
        reserved.extend_from_slice(&self.tried.refused);
        let mut taken = Selection::before(&reserved, &kept);
        // Also of what is idle, and not of what was refused: somebody else may have made that.
        let mut ours = self.taken.to_vec();
        let (mut choices, mut evicted, mut memory) = (Vec::new(), Vec::new(), 0);
        for found in 0..count as usize {
            let wanted = taken.constraints(&wanted);
            let decision = self.decide(&taken, &wanted, (count, memory));
            let best = decision.as_ref().ok();
            let mut evicts = Vec::new();
            let choice = match self.adoptable(&ours, &wanted, best, (count, memory)) {
                Some(slice) => Choice::Adopt(slice),
                None => {
                    let decision = decision.map_err(|no| match no {
                        No::Room(no) => No::Room(placement::of_several(no, asked, found)),
                        over => over,
                    })?;
                    let place = decision.slot();
                    let is_it = |l: &&Lease| slot_of(&l.slice) == place;
                    match self.idle.iter().find(is_it) {
                        Some(idle) if taken.idle.contains(&place) => Choice::TakeOver(idle),
                        _ => {
                            evicted.extend(self.evicted(&decision));
                            evicts.clone_from(&decision.evicts);
                            Choice::Make(to_be_made(&decision))
                        }
                    }
                }
            };
            let slice = match &choice {
                Choice::Make(slice) | Choice::Adopt(slice) => slice,
                Choice::TakeOver(idle) => &idle.slice,
            };
            memory += memory_of(slice, &snapshot.gpus);
            ours.push(slot_of(slice));
            taken.take(slot_of(slice), &evicts);
            choices.push(choice);
        }
        Ok((choices, evicted))
    }

    /// Where one could be made, or lies idle, beside what was chosen for the container before.
    fn decide(
        &self,
        taken: &Selection,
        wanted: &Constraints<'_>,
        (count, memory): (u32, u64),
    ) -> Result<Decision<'_>, No> {
        let mut excluded = wanted.excluded.to_vec();
        let mut over = None;
        loop {
            let left = Constraints {
                excluded: &excluded,
                ..*wanted
            };
            let decision = match placement::choose(self.snapshot, &taken.reserved, &left) {
                Ok(decision) => decision,
                Err(never @ Rejection::Unsatisfiable { .. }) => {
                    return Err(over.unwrap_or_else(|| never.into()));
                }
                // Where it may be had, there is no room as yet.
                Err(now) => return Err(now.into()),
            };
            // What is too much on a GPU of one model may not be on one of another.
            let all = memory + decision.profile.memory_mib;
            let Err(too_much) = self.limits.allow(count, all) else {
                return Ok(decision);
            };
            excluded.push((decision.gpu.uuid.clone(), too_much.to_string()));
            over.get_or_insert(too_much.into());
        }
    }

    fn adoptable(
        &self,
        ours: &[Slot],
        wanted: &Constraints<'_>,
        best: Option<&Decision<'_>>,
        (count, memory): (u32, u64),
    ) -> Option<Slice> {
        let snapshot = self.snapshot;
        let is_beside = |gpu: &String| wanted.own_gpus.contains(gpu);
        let tried = self.tried;
        let may = |slice: &Slice| {
            let memory = memory + memory_of(slice, &snapshot.gpus);
            let is_nearer =
                is_beside(&slice.gpu_uuid) && best.is_some_and(|b| !is_beside(&b.gpu.uuid));
            !is_nearer
                && !tried.unfit.contains(&slot_of(slice))
                && !tried.unusable.borrow().contains(&slot_of(slice))
                && self.limits.allow(count, memory).is_ok()
        };
        let there = (snapshot, ours);
        let usable = |slice: Slice| {
            let slot = slot_of(&slice);
            let usable = usable(self.driver, slice).unwrap_or_else(|e| {
                tracing::warn!("not adopted: {}", e.line());
                None
            });
            if usable.is_none() {
                tried.unusable.borrow_mut().push(slot);
            }
            usable
        };
        adoptable(self.config, there, wanted, may, best, usable)
    }

    fn evicted(&self, decision: &Decision<'_>) -> impl Iterator<Item = Lease> {
        let (gpu, evicts) = (&decision.gpu.uuid, &decision.evicts);
        let here = |l: &&Lease| l.slice.gpu_uuid == *gpu && evicts.contains(&l.slice.placement);
        self.idle.iter().filter(here).cloned()
    }
}

fn to_be_made(decision: &Decision<'_>) -> Slice {
    Slice {
        request: String::new(),
        profile: decision.profile.name.clone(),
        profile_id: decision.profile.id,
        gpu_uuid: decision.gpu.uuid.clone(),
        gpu_index: decision.gpu.index,
        gpu_minor: decision.gpu.minor,
        placement: decision.placement,
        gpu_instance: None,
        compute_instance: None,
        mig_uuid: None,
        emptied: false,
    }
}
