//! The answer that a create for a seat would get now.

use super::admit::admit;
use super::denial::Denial;
use super::levels::Levels;
use super::requester::Tried;
use super::seats::{SeatPlan, SeatPlanner};
use super::shares::Terms;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::inventory::Inventory;
use crate::model::{GpuUuid, Level, Placement};
use crate::placement::{Constraints, GpuObstacle, SeatShortage, SeatTerms};
use crate::policy::Subject;
use crate::queue;
use crate::refusal::NoRoom;
use crate::request::Seat;
use crate::store::{Share, Slice};
use std::cell::RefCell;

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
    let blockers = queue::reservations(&inventory.waiting, snapshot);
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
            slice: Box::new(slice),
            share,
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
