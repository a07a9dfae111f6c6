//! The simulated driver: its engine, its library, its files, and its processes.

mod common;
mod driver_root;
mod hardware;
mod layout;
mod library;
mod machine;
mod memory_use;
mod nvidia_smi;
mod processes;
mod properties;
mod symbols;
mod transcripts;
mod without_mig;
