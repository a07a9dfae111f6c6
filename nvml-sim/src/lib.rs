//! A simulated `libnvidia-ml.so.1`: MIG as the hardware does it, without the hardware.
//!
//! - [`engine`] knows what a machine with MIG-capable GPUs does. It is pure: no files, no clock,
//!   no unsafe code.
//! - [`state`] keeps one machine in a file that several processes share.
//! - [`driver_root`] lays out the files that the kernel module would show under `/proc` and `/dev`.
//! - [`holders`] finds out whether a process holds an instance.
//! - [`cgroups`] finds the cgroups that memory limits name, and those of processes.
//! - [`fault`] and [`trace`] are for tests: what shall go wrong, and what was called.
//! - [`abi`] is NVML's C interface over all of these.
//! - [`cli`] is the `nvml-sim` program.

pub mod abi;
pub mod cgroups;
pub mod cli;
pub mod driver_root;
pub mod engine;
pub mod fault;
pub mod holders;
pub mod state;
pub mod sys;
pub mod trace;

// As NVIDIA's, the library loads no shared libgcc_s.
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle")]
unsafe extern "C" {}
