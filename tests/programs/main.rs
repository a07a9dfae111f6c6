//! The programs over the stub runtime or a simulated machine.

mod claims;
mod completion;
mod configure;
mod counters;
mod damaged_ledger;
mod dcgm;
mod doctor;
mod engines_that_die;
mod events;
mod explain;
mod half_destroyed;
mod kinds;
mod layouts;
mod limits;
mod liveness;
mod many;
mod metrics;
mod moving_world;
mod reuse;
mod seats;
mod several;
mod share;
mod top;
mod verdicts;
mod waiting;
mod whole_gpu;
