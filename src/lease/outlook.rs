//! What a create would be told that came now: by the rules, limits and places that creates go by, and
//! in their words.

use super::acquire::Tried;
use super::ahead::{awaited, behind};
use super::choose::{Choice, No, Search};
use super::reuse::slot_of;
use super::rules::{Limits, Ruled, all_refused, whose};
use super::world::World;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Inventory;
use crate::model::Snapshot;
use crate::placement::{
    self, Constraints, GpuReport, Movable, Reason, Rejection, Reservation, Selection, Site, Slot,
};
use crate::policy::Who;
use crate::request::{Alternative, Request};
use crate::store::{Lease, Slice, Waiting};

pub struct Outlook<'a, D> {
    config: &'a Config,
    driver: &'a D,
    ruled: Ruled,
    limits: Limits<'a>,
    snapshot: Snapshot,
    reserved: Vec<Slot>,
    idle: Vec<Lease>,
    idle_places: Vec<Slot>,
    quarantined: Vec<Slot>,
    movable: Vec<Movable>,
    ours: Vec<Slot>,
    waiting: &'a [Waiting],
    ahead: Vec<Reservation>,
    tried: Tried,
}

/// What comes of one alternative of a request.
pub enum Answer {
    Fits(Fit),
    /// It would be more than a limit allows.
    Limited(Error),
    No(Reason),
}

/// Where each slice that is asked for would lie.
pub struct Fit {
    pub sites: Vec<(Site, Source)>,
    /// How many idle slices would be destroyed for it.
    pub evicts: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Made,
    /// An idle slice, as it is.
    Idle,
    /// An administrator made it.
    Adopted,
}

impl<'a, D: Inventory> Outlook<'a, D> {
    /// `waiting`: those who came before.
    pub fn new(
        (config, driver): (&'a Config, &'a D),
        world: &'a World,
        asked: &Request,
        who: Who,
        waiting: &'a [Waiting],
    ) -> Result<Self> {
        let snapshot = world.without_what_is_over();
        let policy = &config.policy;
        let idle = world.idle_leases();
        let (mut movable, holders) = world.movable();
        for (one, holders) in movable.iter_mut().zip(holders) {
            let rules = |l: &Lease| policy.excluded(&snapshot.gpus, &whose(&l.holder));
            one.excluded = holders.into_iter().flat_map(rules).collect();
        }
        Ok(Outlook {
            config,
            driver,
            ruled: Ruled::new(policy, &snapshot, asked, &who)?,
            limits: Limits::new(policy, who, &snapshot.gpus, &world.leases),
            reserved: world.reserved(),
            idle_places: idle.iter().map(|l| slot_of(&l.slice)).collect(),
            idle,
            quarantined: world.quarantined(),
            movable,
            ours: world.ours(),
            waiting,
            ahead: awaited(waiting, &snapshot),
            snapshot,
            tried: Tried::default(),
        })
    }

    /// Those that the rules leave.
    pub fn alternatives(&self) -> &[Alternative] {
        &self.ruled.alternatives
    }

    /// Of a GPU's memory slices, those that could not be given back.
    pub fn quarantined_on(&self, gpu: &str) -> u32 {
        let here = self.quarantined.iter().filter(|r| r.gpu == gpu);
        here.map(|r| r.placement.size).sum()
    }

    fn wanted(&self) -> Constraints<'_> {
        Constraints {
            blockers: &self.ahead,
            ours: &self.ours,
            idle: &self.idle_places,
            quarantined: &self.quarantined,
            ..self.ruled.wanted()
        }
    }

    fn left_out(&self, asked: &Alternative) -> Vec<(String, String)> {
        let wanted = Constraints {
            alternatives: std::slice::from_ref(&asked.slice),
            ..self.wanted()
        };
        self.limits.left_out(&self.snapshot, asked, &wanted)
    }

    /// What each GPU has to say to one of what is asked for, in the order in which they would be taken;
    /// where that is not to be had, after those that are.
    pub fn gpus(&self, asked: &Alternative, answer: &Answer) -> Vec<GpuReport<'_>> {
        let (snapshot, wanted) = (&self.snapshot, self.wanted());
        // Of what is too much everywhere it is told where it would lie.
        let excluded = match answer {
            Answer::Limited(_) => wanted.excluded.to_vec(),
            _ => self.left_out(asked),
        };
        let wanted = Constraints {
            excluded: &excluded,
            ..wanted
        };
        match answer {
            Answer::No(Reason { taken, .. }) => {
                let wanted = taken.constraints(&wanted);
                placement::explain(snapshot, &taken.reserved, &asked.slice, &wanted)
            }
            _ => placement::explain(snapshot, &self.reserved, &asked.slice, &wanted),
        }
    }

    /// `patience`: how many steps to search for what would have to lie elsewhere.
    pub fn answer(&self, asked: &Alternative, patience: u32) -> Answer {
        let wanted = self.wanted();
        let taken = [&self.reserved[..], &self.idle_places].concat();
        let search = Search {
            config: self.config,
            driver: self.driver,
            snapshot: &self.snapshot,
            taken: &taken,
            wanted: &wanted,
            limits: &self.limits,
            tried: &self.tried,
            idle: &self.idle,
        };
        match search.choose(asked) {
            Ok((choices, evicted)) => Answer::Fits(Fit {
                sites: choices.iter().map(site).collect(),
                evicts: evicted.len(),
            }),
            Err(No::Limit(over)) => Answer::Limited(over),
            Err(No::Room(no)) => {
                let there = (&self.snapshot, &*self.reserved);
                let wanted = Constraints {
                    excluded: &self.left_out(asked),
                    ..wanted
                };
                let reason = placement::reason(there, &self.movable, asked, &wanted, patience);
                Answer::No(reason.unwrap_or_else(|| {
                    Reason::plain(no, Selection::before(&self.reserved, &self.idle_places))
                }))
            }
        }
    }

    /// What is said of no room, as a create says it.
    pub fn refusal(&self, no: Rejection) -> Error {
        match no {
            Rejection::Unsatisfiable { .. } => no.into(),
            Rejection::NoCapacity { why, hint } => {
                Error::new(why + &behind(self.waiting)).hint(hint)
            }
        }
    }

    /// A create's error, where none of the answers is that it fits.
    pub fn error(&self, answers: Vec<Answer>) -> Option<Error> {
        Some(match no_room(answers)? {
            No::Room(no) => self.refusal(no),
            No::Limit(over) => over,
        })
    }
}

/// What is in the way of all alternatives; none where one of them fits.
pub(super) fn no_room(answers: Vec<Answer>) -> Option<No> {
    let (mut noes, mut over) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Answer::Fits(_) => return None,
            Answer::Limited(e) => over = over.or(Some(e)),
            Answer::No(reason) => noes.push(reason.no),
        }
    }
    Some(all_refused(noes, over))
}

fn site(choice: &Choice<'_>) -> (Site, Source) {
    let of = |slice: &Slice| Site {
        gpu_uuid: slice.gpu_uuid.clone(),
        gpu_index: slice.gpu_index,
        profile: slice.profile.clone(),
        placement: slice.placement,
    };
    match choice {
        Choice::Make(slice) => (of(slice), Source::Made),
        Choice::Adopt(slice) => (of(slice), Source::Adopted),
        Choice::TakeOver(lease) => (of(&lease.slice), Source::Idle),
    }
}
