//! The simulated CUDA driver and Multi-Process Service. A row between quotation marks is one of sharing.md, measured
//! on an H100.

mod common;
mod daemons;
mod failures;
mod limit_calls;
mod limits;
mod memory_limits;
mod mig_devices;
mod processes;
