//! The answer that a create would get now: the same rules, limits and places, and nothing written.

use super::admit::Machine;
pub use super::found::{Denial, Step};

use super::found::{Found, Piece};
use super::levels::Levels;
use super::look::{Ask, Look, usable_plan};
use super::outside_mig;
use super::plan::Plan;
use super::requester::{Requester, Tried};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::inventory::{Inventory, holder_subject, subject_of};
use crate::leases::Leases;
use crate::model::{GpuUuid, Nearness};
use crate::placement::{
    self, Admitted, Candidate, Constraints, Diagnosis, GpuReport, MAX_STEPS, Movable, NoRoom,
    Selection, Site, Slot,
};
use crate::policy::Subject;
use crate::queue::Turn;
use crate::refusal;
use crate::request::{self, Alternative, Wanted};
use crate::store::{Held, Portion, Resource, Share, Slice, WholeGpu};
use std::cell::OnceCell;

/// A request of any kind on trial.
pub struct WhatIf<'a, D> {
    machine: Machine<'a, D>,
    wanted: &'a Wanted,
}

/// The answers to the alternatives of a request, up to the first that fits. Only slices have several.
pub struct Answers<'a> {
    /// The alternatives that the policy admits, as `runmig.dev/slice` has them; or another request as it was written.
    pub request: String,
    /// One for each alternative.
    pub all: Vec<Answer<'a>>,
}

/// The answer to one alternative.
pub struct Answer<'a> {
    /// The alternative, as it was written.
    pub request: String,
    /// What a create would get.
    pub outcome: Result<Fit, Denial>,
    /// The GPUs, or the slices with seats, in the order in which a create would take them.
    pub on: OnTrial<'a>,
}

/// What a create would get.
pub enum Fit {
    /// Slices.
    Slices {
        /// Each of them.
        steps: Vec<Step>,
        /// The number of idle slices that a create would destroy.
        evicts: usize,
    },
    /// Whole GPUs.
    Gpus {
        /// The GPUs.
        gpus: Vec<WholeGpu>,
        /// How near those two are that are the farthest apart. None for one GPU.
        farthest: Option<Nearness>,
    },
    /// A share of a GPU or of a slice.
    Share {
        /// The GPU or the slice.
        of: Box<Resource>,
        /// The share.
        share: Share,
        /// Says whether the slice is made for it.
        is_new: bool,
        /// The number of idle slices that a create would destroy.
        evicts: usize,
    },
}

/// What a request was tried on.
pub enum OnTrial<'a> {
    /// The GPUs, for slices. Those without room come after those with room. Of several slices each report is that of the one
    /// without a slot.
    Slices(Vec<GpuReport<'a>>),
    /// The GPUs that the driver can read, or the slices with seats that the request could have, each with its obstacle for all
    /// of the requested sizes.
    Parts(Vec<Candidate<'a>>),
}

impl Answers<'_> {
    /// Says whether an alternative fits.
    pub fn fit(&self) -> bool {
        self.all.last().is_some_and(|answer| answer.outcome.is_ok())
    }

    /// Returns the denial of a create with these answers, unless an alternative fits.
    fn denial(self) -> Option<Denial> {
        let (mut noes, mut over) = (Vec::new(), None);
        for answer in self.all {
            match answer.outcome {
                Ok(_) => return None,
                Err(Denial::Limit(e)) => over = Some(e),
                Err(Denial::Room(no)) => noes.push(no),
            }
        }
        match noes.into_iter().reduce(|no, other| no.joined(*other)) {
            Some(no) => Some(Denial::new(no.may_pass(), over, no)),
            None => over.map(Denial::Limit),
        }
    }
}

impl<'a, D: Queries> WhatIf<'a, D> {
    /// The requests that wait in the inventory came before this one. `inventory`: without the idle slices that are over.
    pub fn new(
        config: &'a Config,
        driver: &'a D,
        inventory: &'a Inventory,
        wanted: &'a Wanted,
        subject: Subject,
    ) -> Self {
        let machine = Machine {
            config,
            driver,
            inventory,
            subject,
        };
        WhatIf { machine, wanted }
    }

    /// Answers the request. `patience`: how many steps to search for slices that would have to lie elsewhere.
    ///
    /// # Errors
    /// The policy forbids the request, or no permitted level is possible.
    pub fn answers(&self, patience: u32) -> Result<Answers<'a>> {
        let levels = OnceCell::new();
        let config = self.machine.config;
        let levels = || levels.get_or_init(|| Levels::of_wanted(config, None, self.wanted));
        let ask = Ask::new(&self.machine, self.wanted, levels)?;
        let Some(asked) = ask.slices() else {
            let (request, look) = (self.wanted.written(), Look::new(&self.machine, &ask));
            let answer = Answer {
                request: request.clone(),
                outcome: look
                    .found(&mut Tried::default())
                    .map(|found| self.fit(found)),
                on: OnTrial::Parts(look.on_trial()),
            };
            let all = vec![answer];
            return Ok(Answers { request, all });
        };
        let trial = SliceTrial::new(&self.machine, asked);
        let mut answers = Answers {
            request: request::written(&asked.alternatives),
            all: Vec::new(),
        };
        let mut tried = Tried::default();
        for one in &asked.alternatives {
            if answers.fit() {
                break;
            }
            let outcome = trial.outcome(one, patience, &mut tried);
            answers.all.push(Answer {
                request: one.to_string(),
                on: OnTrial::Slices(trial.gpus(one, &outcome)),
                outcome: match outcome {
                    Ok(Plan { steps, evict }) => Ok(Fit::Slices {
                        steps,
                        evicts: evict.len(),
                    }),
                    Err(no) => Err(no.of(|no| NoRoom::of_slices(asked.asked(), no.rejection))),
                },
            });
        }
        Ok(answers)
    }

    fn fit(&self, found: Found<'_>) -> Fit {
        let (pieces, evicts) = match found {
            Found::Pieces(pieces, idle) => (pieces, idle.len()),
            Found::PeerCreates(place, _) => (vec![Piece::Placed(*place)], 0),
        };
        let mut gpus = Vec::new();
        for piece in pieces {
            let Piece::Placed(placed) = piece else {
                continue;
            };
            match (placed.portion, placed.on) {
                (Portion::Share(share), of) => {
                    return Fit::Share {
                        is_new: placed.may_make && matches!(of, Resource::Mig(_)),
                        of: Box::new(of),
                        share,
                        evicts,
                    };
                }
                (Portion::All, Resource::Gpu(whole)) => gpus.push(whole),
                (Portion::All, Resource::Mig(_)) => {}
            }
        }
        let farthest = outside_mig::farthest(self.machine.driver, &gpus);
        Fit::Gpus { gpus, farthest }
    }

    /// Returns the error of a create that gets this answer. `asked`: the alternatives, as they were written.
    pub fn refusal(&self, asked: &str, denial: &Denial) -> Error {
        match denial {
            Denial::Limit(over) => refusal::denied(self.wanted, asked, over),
            Denial::Room(no) => refusal::error(no, &self.machine.inventory.waiting, None),
        }
    }

    /// Returns the error of a create with these answers, unless an alternative fits.
    pub fn error(&self, answers: Answers<'_>) -> Option<Error> {
        let asked = answers.request.clone();
        Some(self.refusal(&asked, &answers.denial()?))
    }
}

impl From<&Slice> for Site {
    fn from(slice: &Slice) -> Site {
        Site {
            gpu_uuid: slice.gpu_uuid.clone(),
            gpu_index: slice.gpu_index,
            profile: slice.profile.clone(),
            placement: slice.placement,
        }
    }
}

/// A request for slices on trial.
struct SliceTrial<'m, 'a, D> {
    machine: &'m Machine<'a, D>,
    asked: &'m Admitted,
    reserved: Vec<Slot>,
    idle: Vec<Slot>,
    quarantined: Vec<Slot>,
    movable: Vec<Movable>,
}

impl<'m, 'a, D: Queries> SliceTrial<'m, 'a, D> {
    fn new(machine: &'m Machine<'a, D>, asked: &'m Admitted) -> Self {
        let (inventory, policy) = (machine.inventory, &machine.config.policy);
        let (mut movable, holders) = inventory.movable();
        for (one, holders) in movable.iter_mut().zip(holders) {
            let gpus = &inventory.snapshot.gpus;
            let rules = |h: &Held| policy.excluded(gpus, &holder_subject(&h.lease));
            one.excluded = holders.into_iter().flat_map(rules).collect();
        }
        SliceTrial {
            machine,
            asked,
            reserved: inventory.reserved(),
            idle: inventory.idle(),
            quarantined: inventory.quarantined(),
            movable,
        }
    }

    fn wanted(&self) -> Constraints<'_> {
        Constraints {
            idle: &self.idle,
            quarantined: &self.quarantined,
            ..self.asked.wanted()
        }
    }

    fn excluded(&self, asked: &Alternative, slice: &request::Slice) -> Vec<(GpuUuid, String)> {
        let wanted = self.wanted().of(slice);
        let limits = self.machine.limits();
        limits.excluded(&self.machine.inventory.snapshot, asked, &wanted)
    }

    /// `tried`: the driver's answer about an instance holds for every alternative.
    fn outcome(
        &self,
        asked: &Alternative,
        patience: u32,
        tried: &mut Tried,
    ) -> Result<Plan, Denial<Box<Diagnosis>>> {
        let (wanted, inventory) = (self.wanted(), self.machine.inventory);
        let plan = usable_plan(self.machine, std::slice::from_ref(asked), &wanted, tried);
        let diagnosed = |rejection| {
            let wanted = Constraints {
                excluded: &self.excluded(asked, &asked.slice),
                ..wanted
            };
            let (snapshot, reserved) = (&inventory.snapshot, &self.reserved);
            let found =
                placement::diagnose(snapshot, reserved, &self.movable, asked, &wanted, patience);
            let mut diagnosis = found.unwrap_or_else(|| {
                let selection = Selection::new(reserved, &self.idle);
                Box::new(Diagnosis {
                    selection,
                    rejection,
                })
            });
            diagnosis.rejection.name(|slot| inventory.named_at(slot));
            diagnosis
        };
        plan.map_err(|denial| denial.of(diagnosed))
    }

    fn gpus(
        &self,
        asked: &Alternative,
        outcome: &Result<Plan, Denial<Box<Diagnosis>>>,
    ) -> Vec<GpuReport<'a>> {
        let (snapshot, wanted) = (&self.machine.inventory.snapshot, self.wanted());
        let no = match outcome {
            Err(Denial::Room(no)) => Some(no),
            _ => None,
        };
        let cause = no.and_then(|no| no.rejection.causes().first());
        let slice = cause.map_or(&asked.slice, |cause| cause.slice());
        // A request that is too much everywhere still names its place.
        let excluded = match outcome {
            Err(Denial::Limit(_)) => wanted.excluded.to_vec(),
            _ => self.excluded(asked, slice),
        };
        let wanted = Constraints {
            excluded: &excluded,
            ..wanted
        };
        match no.map(|no| &no.selection) {
            Some(its) => {
                placement::explain(snapshot, &its.reserved, slice, &its.constraints(&wanted))
            }
            None => placement::explain(snapshot, &self.reserved, slice, &wanted),
        }
    }
}

/// Adds to the answer the slices that would have to lie elsewhere. The search has a new look at the
/// machine, without a lock, since it decides nothing. If it fails, or finds room after all, the
/// answer stays as it was.
pub(super) fn explained(
    context: &Leases<'_>,
    requester: &Requester<'_>,
    turn: &mut Turn<'_>,
    no: Box<NoRoom>,
) -> Box<NoRoom> {
    let wanted = &requester.request.wanted;
    // No move of another lease makes room for a share or a whole GPU, and none is planned for a seat.
    let Wanted::Slices(_) = wanted else {
        return no;
    };
    let mut search = || -> Result<Option<Denial>> {
        let driver = context.driver();
        let inventory = Inventory::read(context, &driver, turn.earlier()?)?.without_idle_over();
        let subject = subject_of(requester.holder);
        let what_if = WhatIf::new(context.config, &driver, &inventory, wanted, subject);
        // Other creates may wait for this process to end.
        Ok(what_if.answers(MAX_STEPS / 10)?.denial())
    };
    match search() {
        Ok(Some(Denial::Room(no))) => no,
        _ => no,
    }
}
