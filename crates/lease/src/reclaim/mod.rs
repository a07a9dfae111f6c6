//! Releases leases, destroys their instances, and collects leases that no process released.

mod claim;
mod daemon;
mod destroy;
mod earlier_boot;
mod finding;
mod gc;
pub(crate) mod holder;
mod layout;
mod left;
mod limits;
pub(crate) mod liveness;
pub(crate) mod lost;
mod ready;
mod release;
mod repair;
mod revive;

pub(crate) use claim::{
    detach, release_claim, release_dead, release_device, undo_half_made, user_of_device,
};
pub(crate) use daemon::{home, remove_home, start};
pub(crate) use destroy::{destroy, exists, holders, is_whole, locate};
pub(crate) use earlier_boot::end_earlier_boot;
pub use finding::Patience;
pub use finding::{Collection, Finding, Outcome};
pub(crate) use gc::{collect, discard_idle, gc, release_going, unseen};
pub(crate) use layout::destroy_unwanted;
pub(crate) use left::release_ended;
pub(crate) use ready::{own_cgroups, ready, ready_if_started, started};
pub(crate) use ready::{release_if_dead, release_if_over};
pub use release::Returned;
pub(crate) use release::{release, release_instance_unless, release_unless};
pub use repair::Repair;
pub(crate) use repair::repair;
