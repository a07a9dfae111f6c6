//! Layouts: the MIG modes and instances that an administrator wants, in the files of NVIDIA's mig-parted.
//!
//! `node` reads bounded YAML, `file` knows the format, `resolve` finds the target of each GPU, `machine` compares it with the
//! instances of the machine and exports these.

mod file;
mod machine;
mod node;
mod resolve;

pub use file::{Configuration, Devices, Entry, LayoutFile};
pub use machine::{DEFAULT_LABEL, Document, difference, export};
pub use resolve::{Target, Targets, resolve, validate, wanted_parts};
