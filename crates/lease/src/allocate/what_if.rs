//! The answer that a create would get now: the same rules, limits and places, and nothing written.

use super::admit::{Admission, Machine, all_denied, holder_subject, subject_of};
use super::denial::Denial;
use super::found::{Found, Piece, SharePlace};
use super::levels::Levels;
use super::look::{Ask, Look};
use super::plan::Step;
use super::requester::{Requester, Tried};
use super::usable_plan::usable_plan;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::inventory::Inventory;
use crate::leases::Leases;
use crate::model::{GpuUuid, Level, Placement};
use crate::placement::{
    self, Constraints, Diagnosis, GpuObstacle, GpuReport, MAX_STEPS, Movable, NoRoom, Rejection,
    Selection, Site, Slot,
};
use crate::policy::Subject;
use crate::queue::Turn;
use crate::refusal::{self, Refusal};
use crate::request::{Alternative, Slice, Slices, Wanted};
use crate::store::{Held, Resource, Share, WholeGpu};
use std::cell::{OnceCell, RefCell};

pub use super::gpus::farthest;

/// A request on trial: the rules, limits and slots of a create, without any write.
pub struct WhatIf<'a, D> {
    config: &'a Config,
    driver: &'a D,
    inventory: Inventory,
    subject: Subject,
    asked: Admission,
    reserved: Vec<Slot>,
    idle: Vec<Slot>,
    quarantined: Vec<Slot>,
    movable: Vec<Movable>,
    /// The driver's answer about an instance holds for every alternative.
    tried: RefCell<Tried>,
}

/// The outcome of one alternative of a request.
pub enum Outcome {
    /// A create would get these slots.
    Fits(Fit),
    /// The alternative exceeds a limit.
    Limited(Error),
    /// The alternative gets no slot.
    No(Diagnosis),
}

/// The place of each requested slice.
pub struct Fit {
    /// The slot of each requested slice, and its source.
    pub sites: Vec<(Site, Source)>,
    /// The number of idle slices that a create would destroy.
    pub evicts: usize,
}

/// The way in which a create gets a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// runmig creates it.
    Made,
    /// runmig hands out an idle slice.
    Idle,
    /// runmig hands out an instance that an administrator made.
    Adopted,
}

impl<'a, D: Queries> WhatIf<'a, D> {
    /// The requests that wait in the inventory came before this one.
    pub fn new(
        config: &'a Config,
        driver: &'a D,
        inventory: &Inventory,
        request: &Slices,
        subject: Subject,
    ) -> Result<Self> {
        let (mut movable, holders) = inventory.movable();
        let inventory = inventory.without_idle_over();
        let (snapshot, policy) = (&inventory.snapshot, &config.policy);
        for (one, holders) in movable.iter_mut().zip(holders) {
            let rules = |h: &Held| policy.excluded(&snapshot.gpus, &holder_subject(&h.lease));
            one.excluded = holders.into_iter().flat_map(rules).collect();
        }
        let machine = Machine {
            config,
            driver,
            inventory: &inventory,
            subject: subject.clone(),
        };
        Ok(WhatIf {
            config,
            driver,
            asked: machine.admit(request)?,
            subject,
            reserved: inventory.reserved(),
            idle: inventory.idle(),
            quarantined: inventory.quarantined(),
            movable,
            tried: RefCell::default(),
            inventory,
        })
    }

    fn machine(&self) -> Machine<'_, D> {
        Machine {
            config: self.config,
            driver: self.driver,
            inventory: &self.inventory,
            subject: self.subject.clone(),
        }
    }

    /// Returns the alternatives that the policy admits.
    pub fn alternatives(&self) -> &[Alternative] {
        &self.asked.admitted.alternatives
    }

    /// Returns the number of a GPU's memory slices that could not be released.
    pub fn quarantined_on(&self, gpu: &GpuUuid) -> u32 {
        let here = self.quarantined.iter().filter(|r| r.gpu == *gpu);
        here.map(|r| r.placement.size).sum()
    }

    fn wanted(&self) -> Constraints<'_> {
        Constraints {
            idle: &self.idle,
            quarantined: &self.quarantined,
            ..self.asked.wanted()
        }
    }

    fn excluded(&self, asked: &Alternative, slice: &Slice) -> Vec<(GpuUuid, String)> {
        let wanted = self.wanted().of(slice);
        let limits = self.machine().limits();
        limits.excluded(&self.inventory.snapshot, asked, &wanted)
    }

    /// Returns each GPU's outcome for one alternative, in the order in which a create would take
    /// them; GPUs without room come after those with room. Of several slices it is that of the one without a slot.
    pub fn gpus(&self, asked: &Alternative, outcome: &Outcome) -> Vec<GpuReport<'_>> {
        let (snapshot, wanted) = (&self.inventory.snapshot, self.wanted());
        let slice = match outcome {
            Outcome::No(diagnosis) => {
                { diagnosis.rejection.causes().first() }.map_or(&asked.slice, |cause| cause.slice())
            }
            _ => &asked.slice,
        };
        // A request that is too much everywhere still names its place.
        let excluded = match outcome {
            Outcome::Limited(_) => wanted.excluded.to_vec(),
            _ => self.excluded(asked, slice),
        };
        let wanted = Constraints {
            excluded: &excluded,
            ..wanted
        };
        match outcome {
            Outcome::No(Diagnosis { selection, .. }) => {
                let wanted = selection.constraints(&wanted);
                placement::explain(snapshot, &selection.reserved, slice, &wanted)
            }
            _ => placement::explain(snapshot, &self.reserved, slice, &wanted),
        }
    }

    /// Returns the outcome of one alternative. `patience`: how many steps to search for slices that would
    /// have to lie elsewhere.
    pub fn outcome(&self, asked: &Alternative, patience: u32) -> Outcome {
        let (wanted, machine) = (self.wanted(), self.machine());
        let (limits, mut tried) = (machine.limits(), self.tried.borrow_mut());
        match usable_plan(&machine, &wanted, &limits, &mut tried, |planner| {
            planner.plan_one(asked)
        }) {
            Ok(plan) => Outcome::Fits(Fit {
                sites: plan.steps.iter().map(site).collect(),
                evicts: plan.evict.len(),
            }),
            Err(Denial::Limit(over)) => Outcome::Limited(over),
            Err(Denial::Room(no)) => {
                let wanted = Constraints {
                    excluded: &self.excluded(asked, &asked.slice),
                    ..wanted
                };
                let found = placement::diagnose(
                    &self.inventory.snapshot,
                    &self.reserved,
                    &self.movable,
                    asked,
                    &wanted,
                    patience,
                );
                let mut diagnosis = found.unwrap_or_else(|| Diagnosis {
                    selection: Selection::new(&self.reserved, &self.idle),
                    rejection: no,
                });
                diagnosis
                    .rejection
                    .name(|slot| self.inventory.named_at(slot));
                Outcome::No(diagnosis)
            }
        }
    }

    /// Returns the error of a create with this rejection.
    pub fn refusal(&self, no: Rejection) -> Error {
        Refusal {
            rejection: &no,
            blockers: &self.inventory.waiting,
            waited: None,
        }
        .error()
    }

    /// A create's error, where no outcome is that it fits.
    pub fn error(&self, outcomes: Vec<Outcome>) -> Option<Error> {
        Some(match no_room(outcomes)? {
            Denial::Room(no) => self.refusal(no),
            Denial::Limit(over) => over,
        })
    }
}

/// Returns the obstacle to all alternatives; none if one of them fits.
pub(super) fn no_room(outcomes: Vec<Outcome>) -> Option<Denial> {
    let (mut noes, mut over) = (Vec::new(), None);
    for outcome in outcomes {
        match outcome {
            Outcome::Fits(_) => return None,
            Outcome::Limited(e) => over = over.or(Some(e)),
            Outcome::No(diagnosis) => noes.push(diagnosis.rejection),
        }
    }
    Some(all_denied(noes, over))
}

fn site(step: &Step) -> (Site, Source) {
    let slice = step.slice();
    let site = Site {
        gpu_uuid: slice.gpu_uuid.clone(),
        gpu_index: slice.gpu_index,
        profile: slice.profile.clone(),
        placement: slice.placement,
    };
    let source = match step {
        Step::Create(_) => Source::Made,
        Step::Adopt(..) => Source::Adopted,
        Step::Reuse(..) => Source::Idle,
    };
    (site, source)
}

/// The answer that a create for whole GPUs, a share or a seat would get now.
pub struct Trial {
    /// The GPUs that the driver can read, or the slices with seats that the request could have.
    pub on: Vec<OnTrial>,
    /// The outcome of the request.
    pub outcome: TrialOutcome,
}

/// A GPU in such an answer, or a slice with seats.
pub struct OnTrial {
    /// The driver's index of the GPU.
    pub gpu_index: u32,
    /// The UUID of the GPU.
    pub gpu_uuid: GpuUuid,
    /// The profile and the place of the slice. None for the GPU itself.
    pub slice: Option<(String, Placement)>,
    /// The memory that it gives out, in MiB, if it is known.
    pub memory_mib: Option<u64>,
    /// The memory that is left of it, in MiB.
    pub free_mib: u64,
    /// The level of a share there, if there is one.
    pub level: Option<Level>,
    /// The number of its shares.
    pub shares: usize,
    /// The obstacle for all of the requested sizes, if there is one.
    pub obstacle: Option<GpuObstacle>,
}

/// The outcome of such a request.
pub enum TrialOutcome {
    /// The request gets these GPUs.
    Gpus(Vec<WholeGpu>),
    /// The request gets this share of this GPU or slice.
    Share {
        /// The GPU or the slice.
        of: Box<Resource>,
        /// The share.
        share: Share,
        /// Says whether the slice is made for it.
        is_new: bool,
    },
    /// The request exceeds a limit.
    Limited(Error),
    /// The request finds no room.
    No(Box<NoRoom>),
}

/// Answers a request for whole GPUs, a share or a seat, and writes nothing.
///
/// # Errors
/// The policy forbids the request, or no permitted level is possible.
pub fn look(
    config: &Config,
    driver: &impl Queries,
    inventory: &Inventory,
    wanted: &Wanted,
    subject: Subject,
) -> Result<Trial> {
    let inventory = &inventory.without_idle_over();
    let machine = Machine {
        config,
        driver,
        inventory,
        subject,
    };
    let levels = OnceCell::new();
    let of_wanted = || levels.get_or_init(|| Levels::of_wanted(config, None, wanted));
    let ask = Ask::new(&machine, wanted, of_wanted)?;
    let look = Look::new(&machine, &ask);
    let outcome = match look.found(&mut Tried::default()) {
        Ok(Found::Pieces(pieces, _)) => outcome(pieces),
        Ok(Found::PeerCreates(place, _)) => share(*place),
        Err(Denial::Limit(over)) => TrialOutcome::Limited(over),
        Err(Denial::Room(no)) => TrialOutcome::No(no),
    };
    let on = look.on_trial().into_iter().map(|(on, obstacle)| OnTrial {
        gpu_index: on.gpu.index,
        gpu_uuid: on.gpu.uuid.clone(),
        slice: on.slice.map(|of| (of.profile.name.clone(), of.at)),
        memory_mib: on.memory_mib,
        free_mib: on.free_mib,
        level: on.level.map(|on| on.level),
        shares: on.holders.len(),
        obstacle,
    });
    Ok(Trial {
        on: on.collect(),
        outcome,
    })
}

fn outcome(pieces: Vec<Piece<'_>>) -> TrialOutcome {
    let mut gpus = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Share(place) => return share(place),
            Piece::Whole(whole) => gpus.push(whole),
            Piece::Slice(_) => {}
        }
    }
    TrialOutcome::Gpus(gpus)
}

fn share(place: SharePlace<'_>) -> TrialOutcome {
    TrialOutcome::Share {
        is_new: place.may_make && matches!(place.on, Resource::Mig(_)),
        of: Box::new(place.on),
        share: place.share,
    }
}

/// Returns the error of a create that finds no room.
pub fn error(no: &NoRoom, inventory: &Inventory) -> Error {
    refusal::error(no, &inventory.waiting, None)
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
    match &requester.request.wanted {
        Wanted::Slices(slices) => search(context, requester, slices, turn)
            .ok()
            .flatten()
            .map_or(no, |no| NoRoom::of_slices(slices.clone(), no)),
        // No move of another lease makes room for a share or a whole GPU, and none is planned for a seat.
        Wanted::Share(_) | Wanted::Seat(_) | Wanted::Gpus(_) => no,
    }
}

fn search(
    context: &Leases<'_>,
    requester: &Requester<'_>,
    slices: &Slices,
    turn: &mut Turn<'_>,
) -> Result<Option<Rejection>> {
    let driver = context.driver();
    let inventory = Inventory::read(context, &driver, turn.earlier()?)?;
    let subject = subject_of(requester.holder);
    let what_if = WhatIf::new(context.config, &driver, &inventory, slices, subject)?;
    let outcomes = what_if.alternatives().iter();
    // Other creates may wait for this process to end.
    let outcomes = outcomes.map(|asked| what_if.outcome(asked, MAX_STEPS / 10));
    match no_room(outcomes.collect()) {
        Some(Denial::Limit(over)) => Err(over),
        Some(Denial::Room(no)) => Ok(Some(no)),
        None => Ok(None),
    }
}
