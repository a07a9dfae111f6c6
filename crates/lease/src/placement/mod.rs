//! Pure placement: from the driver's answers, the reserved slots and the constraints of a request to a slot.
//! No geometry is built in, and no file is read.
//!
//! The files import downwards only, in the order that tests/core/architecture holds.

mod backfill;
mod choose;
mod defrag;
mod diagnosis;
mod explain;
mod gpu_obstacle;
mod layout;
mod near;
mod no_room;
mod occupancy;
mod plan;
mod rejection;
mod several;
mod share;
#[cfg(test)]
mod tests;
mod whole;

pub(crate) use backfill::{Backfill, could_use, is_blocked};
pub use choose::choose;
pub(crate) use choose::choose_one;
pub use defrag::{diagnose, fewest_moves};
pub use explain::{GpuReport, SlotCost, Verdict, explain, fragmentation};
pub use gpu_obstacle::{GpuObstacle, GpuUse};
pub use layout::{
    LayoutObstacle, LayoutPlan, NewInstance, Standing, WantedParts, is_part, plan_layout,
};
pub use no_room::{Candidate, CandidateSlice, NoRoom, ShareLevel};
pub use occupancy::{Exhausted, Occupancy, Occupant, PARTS, Parts, Slot, parts};
pub(crate) use plan::{Admitted, fitting, usable};
pub use plan::{
    Constraints, Decision, DefragPlan, MAX_STEPS, Movable, Move, Reservation, SearchResult, Site,
};
pub use rejection::{Cause, Exhaustion, InTheWay, LeftOut, Obstacle, Rejection, Shortage};
pub use several::{Diagnosis, Packer};
pub(crate) use several::{Selection, never_several};
pub use share::{Over, ShareMemory, ShareTerms, choose_share};
pub(crate) use whole::{choose_whole, least_memory, smallest_whole};
