//! Releases leases, destroys their instances, and collects leases that no process released.

mod claim;
mod daemon;
mod destroy;
mod earlier_boot;
mod finding;
mod gc;
mod holder;
mod layout;
mod left_by_claims;
mod limits;
pub(crate) mod liveness;
pub(crate) mod lost_leases;
mod ready;
mod release;
mod repair;
mod revive;

pub(crate) use claim::{release_dead, undo_half_made};
pub(crate) use daemon::{remove_home, start};
pub(crate) use destroy::{destroy, exists, holders, is_whole, locate};
pub(crate) use earlier_boot::end_earlier_boot;
pub use finding::Patience;
pub use finding::{Collection, Finding, Outcome};
pub(crate) use gc::{collect, discard_idle, release_going, unseen};
pub(crate) use layout::destroy_unwanted;
pub(crate) use ready::own_cgroups;
pub use release::Returned;
pub(crate) use release::release;
pub use repair::Repair;
