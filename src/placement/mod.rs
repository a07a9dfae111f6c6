//! Where a slice goes: a pure function of what the driver says and what is asked. No geometry is
//! built in, no file read.
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

pub use backfill::{could_use, is_held_up};
pub use choose::choose;
pub use constraints::Wanted;
pub use defrag::diagnose::{Kind, Reason, reason};
pub use defrag::search::fewest_moves;
pub use diagnosis::{none_of, of_several};
pub use explain::{OnGpu, Place, Verdict, explain, fragmentation};
pub use occupancy::{Lying, Reserved, Room};
pub use pack::Packer;
pub use plan::{Awaited, Decision, Found, Movable, Move, PATIENCE, Plan, Site};
pub use rejection::NoRoom;
pub use several::{Taken, choose_several, never_several};
