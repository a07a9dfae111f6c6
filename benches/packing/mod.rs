//! Placement policies side by side, on the same arrivals and departures.

pub mod figures;
#[path = "../../testkit/src/models.rs"]
pub mod models;
pub mod plot;
pub mod policy;
pub mod workloads;
pub mod world;

pub use figures::{Settings, by_mix, measure, table};
pub use policy::{ALL, Policy};
pub use workloads::Workloads;
