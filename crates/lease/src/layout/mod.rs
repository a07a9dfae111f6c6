//! Layouts: the MIG modes and instances that an administrator wants, in the files of NVIDIA's mig-parted.
//!
//! `node` reads bounded YAML, `header` and `file` know the format, `content` names the instances of a GPU, `resolve` finds the GPUs
//! that an entry means, `compare` holds them against the machine. `export`, `generate` and `checkpoint` make files, the
//! first two by `write`. `places` reads a checkpoint and finds its GPUs, `hooks` the commands around an apply. All are pure but `read`.

mod checkpoint;
mod compare;
mod content;
mod export;
mod file;
mod generate;
mod header;
mod hooks;
mod key_order;
mod name;
mod node;
mod places;
mod read;
mod resolve;
mod write;

pub use checkpoint::checkpoint;
pub use compare::{Comparison, compare};
pub use export::{DEFAULT_LABEL, export};
pub use file::{Configuration, Devices, Entry, LayoutFile};
pub use generate::generate;
pub use hooks::{HookCommand, Moment};
pub use places::{Checkpoint, PlaceTarget, resolve_checkpoint};
pub use read::{read_checkpoint, read_file, read_hooks, read_input};
pub use resolve::{Target, Targets, resolve, validate, wanted_parts};
pub use write::Document;
