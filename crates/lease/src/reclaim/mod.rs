//! Releases leases, destroys their instances, and collects leases that no process released.

mod claim;
mod daemon;
mod destroy;
mod finding;
mod gc;
mod layout;
mod limits;
pub(crate) mod liveness;
pub(crate) mod lost_leases;
mod ready;
mod release;
mod repair;
mod revive;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use claim::{release_dead, undo_half_made};
pub(crate) use daemon::{remove_home, start};
pub(crate) use destroy::{destroy, exists, holders, is_whole, locate};
pub use finding::{Finding, Outcome, Patience};
pub(crate) use gc::{collect, discard_idle, release_going, unseen};
pub(crate) use layout::destroy_unwanted;
pub(crate) use ready::own_cgroups;
pub use release::Returned;
pub(crate) use release::{end_earlier_boot, release};
pub use repair::Repair;
