//! A machine with MIG-capable GPUs, as a pure function of its state and a call.

mod code;
mod compute_instances;
mod geometry;
mod gpu_instances;
mod health;
mod identity;
mod machine;
mod memory_limits;
mod mig_mode;
mod placement;

pub use code::{Code, c_words};
pub use compute_instances::{CI_PROFILE_COUNT, CiProfile, NVL_SINCE, ONE_SLICE_REV1};
pub use geometry::{Architecture, Engines, GI_PROFILE_COUNT, GiProfile, Model};
pub use health::Health;
pub use identity::{mig_uuid, uuid_from};
pub use machine::{
    ComputeInstance, ComputeMode, Driver, Gpu, GpuInstance, Holder, HolderKind, Machine, MigDevice,
    NewGpu, NvlProfile, Target, context_bytes,
};
pub use memory_limits::{LimitBackend, MEMORY_LIMITS_SINCE, MemoryLimit, UNLIMITED};
pub use mig_mode::Mode;
pub use placement::Placement;

/// Tells whether a process holds something, the one question that the engine asks the outside.
pub trait Holds {
    fn held(&self, target: Target) -> bool;
}

/// No process holds anything.
pub struct Unheld;

impl Holds for Unheld {
    fn held(&self, _: Target) -> bool {
        false
    }
}
