//! What a create would be told that came now: by the rules, limits and places that creates go by, and
//! in their words.

use super::queue::{awaited, behind};
use super::rules::{Limits, Ruled, all_refused};
use super::world::World;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::model::Snapshot;
use crate::placement::{self, Awaited, Movable, NoRoom, OnGpu, Plan, Reason, Reserved, Wanted};
use crate::policy::Who;
use crate::request::{Request, Slice};
use crate::store::Waiting;

pub struct Outlook<'a> {
    ruled: Ruled,
    limits: Limits<'a>,
    pub snapshot: Snapshot,
    reserved: Vec<Reserved>,
    idle: Vec<Reserved>,
    quarantined: Vec<Reserved>,
    movable: Vec<Movable>,
    ours: Vec<Reserved>,
    waiting: &'a [Waiting],
    ahead: Vec<Awaited>,
}

/// What comes of one alternative of a request.
pub enum Answer {
    /// There, and nothing has to move for it.
    Fits(Plan),
    /// It would be more than a limit allows.
    Limited(Error),
    No(Reason),
}

impl<'a> Outlook<'a> {
    /// `waiting`: those who came before.
    pub fn new(
        config: &'a Config,
        world: &World,
        asked: &Request,
        who: Who,
        waiting: &'a [Waiting],
    ) -> Result<Outlook<'a>> {
        let snapshot = world.without_what_is_over();
        let policy = &config.policy;
        Ok(Outlook {
            ruled: Ruled::new(policy, &snapshot, asked, &who)?,
            limits: Limits::new(policy, who, &snapshot.gpus, &world.leases),
            reserved: world.reserved(),
            idle: world.idle(),
            quarantined: world.quarantined(),
            movable: world.movable().0,
            ours: world.ours(),
            waiting,
            ahead: awaited(waiting, &snapshot),
            snapshot,
        })
    }

    /// Those that the rules leave.
    pub fn alternatives(&self) -> &[Slice] {
        &self.ruled.alternatives
    }

    /// Those who came before.
    pub fn ahead(&self) -> &[Waiting] {
        self.waiting
    }

    /// The same in words; empty where there is nobody.
    pub fn behind(&self) -> String {
        behind(self.waiting)
    }

    /// Of a GPU's memory slices, those that could not be given back.
    pub fn quarantined_on(&self, gpu: &str) -> u32 {
        let here = self.quarantined.iter().filter(|r| r.gpu == gpu);
        here.map(|r| r.placement.size).sum()
    }

    fn wanted<'w>(&'w self, slice: &'w Slice) -> Wanted<'w> {
        Wanted {
            alternatives: std::slice::from_ref(slice),
            ahead: &self.ahead,
            ours: &self.ours,
            idle: &self.idle,
            quarantined: &self.quarantined,
            ..self.ruled.wanted()
        }
    }

    /// Each GPU's, in the order in which they would be taken.
    pub fn gpus(&self, slice: &Slice) -> Vec<OnGpu<'_>> {
        placement::explain(&self.snapshot, &self.reserved, slice, &self.wanted(slice))
    }

    /// `patience`: how many steps to search for what would have to lie elsewhere.
    pub fn answer(&self, slice: &Slice, patience: u32) -> Answer {
        let wanted = self.wanted(slice);
        let allowed = self.limits.allow_any();
        let chosen = allowed.and_then(|()| {
            self.limits
                .choose_one(&self.snapshot, &self.reserved, &wanted)
        });
        match chosen {
            Err(over) => Answer::Limited(over),
            Ok(Ok(decision)) => Answer::Fits(decision.into()),
            Ok(Err(_)) => {
                let (there, movable) = ((&self.snapshot, &*self.reserved), &self.movable);
                Answer::No(placement::reason(there, movable, slice, &wanted, patience))
            }
        }
    }

    /// What is said of no room, as a create says it.
    pub fn refusal(&self, no: NoRoom) -> Error {
        match no {
            NoRoom::Never { .. } => no.into(),
            NoRoom::Now { why, hint } => Error::new(why + &self.behind()).hint(hint),
        }
    }

    /// A create's error, where none of the answers is that it fits.
    pub fn error(&self, answers: Vec<Answer>) -> Option<Error> {
        Some(match self.no_room(answers)? {
            Ok(no) => self.refusal(no),
            Err(over) => over,
        })
    }

    /// The same before it is an error; the limit's where nothing else is in the way.
    pub(super) fn no_room(&self, answers: Vec<Answer>) -> Option<Result<NoRoom>> {
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
}
