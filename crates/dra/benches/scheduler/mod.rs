//! Kubernetes' scheduler with each order of the devices, on the same arrivals and departures.

mod figures;
// The benchmark of clusters uses the rest.
#[allow(dead_code)]
mod node;
mod order;
mod run;

pub use figures::{Settings, measure, table};
