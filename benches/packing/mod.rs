//! Placement policies side by side, on the same arrivals and departures.

pub mod figures;
pub mod plot;
pub mod policy;
pub mod world;

pub use figures::{Figures, Settings, measure, table};
pub use policy::{ALL, Policy};
pub use world::Workloads;
