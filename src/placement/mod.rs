//! The choice of a slice's place: a pure function of the driver's answers and the request. No
//! geometry is built in, no file read.
//!
//! The files import downwards only, in the order that tests/architecture.rs holds.

mod backfill;
mod choose;
mod constraints;
mod defrag;
mod diagnosis;
mod explain;
mod occupancy;
mod pack;
mod plan;
mod rejection;
mod score;
mod several;
#[cfg(test)]
mod tests;

pub use backfill::{could_use, is_blocked};
pub use choose::choose;
pub use constraints::Constraints;
pub use defrag::diagnose::{Kind, Reason, reason};
pub use defrag::search::fewest_moves;
pub use diagnosis::{none_of, of_several};
pub use explain::{GpuReport, SlotCost, Verdict, explain, fragmentation};
pub use occupancy::{Occupancy, Occupant, Slot};
pub use pack::Packer;
pub use plan::{Decision, DefragPlan, MAX_STEPS, Movable, Move, Reservation, SearchResult, Site};
pub use rejection::Rejection;
pub use several::{Selection, choose_several, never_several};
