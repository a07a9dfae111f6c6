//! A simulated `libcuda.so.1` and a simulated Multi-Process Service (MPS), over the machines of
//! nvml-sim.
//!
//! - [`account`] keeps the GPU memory of one process within its limit and the GPU's free memory.
//! - [`limits`] reads and prints MPS's memory limits as NVIDIA's programs do.
//! - [`protocol`] is spoken on the sockets of an MPS daemon.
//! - [`mps`] is the control program, the daemon and its server.
//! - [`driver`] is CUDA in the client's process, with MPS or without.
//! - [`abi`] is CUDA's C interface over the driver.

pub mod abi;
pub mod account;
pub mod driver;
pub mod error;
pub mod limits;
pub mod mps;
pub mod protocol;
pub mod sys;
