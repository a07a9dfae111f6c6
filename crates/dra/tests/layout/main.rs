//! The layout of a node, on machines of all GPU models that the simulated driver has.

mod classes;
mod counters;
mod generation;
mod ledger;
mod limits;
mod names;
mod order;
mod scheduler;
mod withdrawal;
mod world;
