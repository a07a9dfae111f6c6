//! Leases of MIG slices: placement, driver and ledger of one machine, without any OCI type.
//!
//! The floors, from the top; an import points down:
//!
//! ```text
//! manager       LeaseManager: the operations that other crates call
//! allocate      a create: admit, plan, reserve, provision
//! queue         waits for room, and says why it woke
//! reclaim       release, destroy, collect
//! inventory     driver, ledger and queue at one moment
//! idle, admitted, draft, context, refusal, bundles
//! ```
//!
//! A create journals each instance before it creates it, and a release strikes a lease off only after the
//! driver confirms that the instance is gone. A kill in between leaves a record from which the next
//! process goes on.

#![warn(missing_docs, unreachable_pub)]

mod admitted;
mod allocate;
mod bundles;
pub mod config;
mod context;
mod draft;
pub mod error;
pub mod files;
pub mod framed;
#[doc(hidden)]
pub mod fuzzing;
pub mod gpu;
mod idle;
mod inventory;
mod manager;
pub mod model;
pub mod paths;
pub mod placement;
pub mod policy;
pub mod process;
pub mod programs;
mod queue;
mod reclaim;
pub mod refusal;
pub mod request;
pub mod store;
pub mod trust;

pub use allocate::{Answer, Fit, Source, WhatIf};
pub use bundles::{Author, Bundles};
pub use context::driver;
pub use inventory::Inventory;
pub use manager::LeaseManager;
pub use reclaim::liveness::{
    Liveness, UNSEEN_HINT, container_lives, is_made_by_others, sign_of_life, unseen,
};
pub use reclaim::lost::Told;
pub use reclaim::{Collection, Finding, Outcome, Patience, Returned};
