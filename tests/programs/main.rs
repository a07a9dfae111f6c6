//! The programs over the stub runtime or a simulated machine.

mod claims;
mod configure;
mod counters;
mod damaged_ledger;
mod doctor;
mod kinds;
mod layouts;
mod limits;
mod liveness;
mod many;
mod metrics;
mod moving_world;
mod reuse;
mod same_id;
mod seats;
mod several;
mod share;
mod top;
mod whole_gpu;
