//! Gives back what leases hold: releases them, destroys their instances, collects what nobody released.

mod damaged;
mod destroy;
mod earlier_boot;
mod ended;
mod finding;
mod gc;
mod keep;
pub mod liveness;
pub mod lost;
mod patience;
mod ready;
mod release;

pub use damaged::{damaged, release_damaged, release_damaged_of};
pub use destroy::{destroy, holders, locate};
pub use ended::{lasting, release_if_dead, release_if_over};
pub use finding::{Collection, Finding, Outcome};
pub use gc::{collect, discard_idle, gc, unseen};
pub use patience::Patience;
pub use ready::{ready, ready_if_started, started};
pub use release::{Returned, release, release_unless};
