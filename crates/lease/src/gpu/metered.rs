//! A session whose calls are timed, and whose failures are told to a listener.

use super::nvml::Session;
use super::{
    DetailedGpu, DriverError, Label, LimitMemory, MemoryLimits, Mig, ModeChange, Queries, Result,
};
use crate::model::{
    ComputeInstance, GpuLoad, GpuUuid, ListedInstance, Placement, Profile, Snapshot,
};
use std::path::Path;
use std::time::{Duration, Instant};

/// Hears each call of the driver.
pub(crate) trait Listener {
    /// Hears of a call that took this time, and of its failure.
    fn called(&self, time: Duration, failure: Option<&DriverError>);
}

/// A session that tells its listener.
pub(crate) struct Metered<'a> {
    session: Session,
    listener: &'a dyn Listener,
}

impl<'a> Metered<'a> {
    pub(crate) fn new(session: Session, listener: &'a dyn Listener) -> Self {
        Metered { session, listener }
    }

    /// Keeps the geometry for the next process; see `Session::keep_geometry`.
    pub(crate) fn keep_geometry(&self) {
        self.session.keep_geometry();
    }

    /// Ends the session until the next call; see `Session::close`.
    pub(crate) fn close(&mut self) {
        self.session.close();
    }

    /// Returns all GPUs in detail; see `Session::detailed_gpus`.
    pub(crate) fn detailed_gpus(&self) -> Result<Vec<DetailedGpu>> {
        self.tell(Session::detailed_gpus)
    }

    fn tell<T>(&self, call: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let answer = call(&self.session);
        self.listener.called(begun.elapsed(), answer.as_ref().err());
        answer
    }

    /// The same for a question to which a code is an answer.
    fn ask<T>(&self, call: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let answer = call(&self.session);
        let is_answer = |e: &&DriverError| e.code().is_none();
        let failure = answer.as_ref().err().filter(is_answer);
        self.listener.called(begun.elapsed(), failure);
        answer
    }
}

/// Writes methods that pass a call to the session and tell the listener.
macro_rules! forward {
    ($($by:ident $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> Result<$out> {
            self.$by(|session| session.$name($($arg),*))
        })*
    };
}

impl Queries for Metered<'_> {
    forward! {
        tell prepare() -> ();
        tell snapshot() -> Snapshot;
        tell offered_profiles(gpu: &GpuUuid) -> Vec<Profile>;
        tell free_instances(gpu: &GpuUuid, profile: u32) -> u32;
        tell instances_of(gpu: &GpuUuid, profile: u32) -> Vec<ListedInstance>;
        tell load(gpu: &GpuUuid) -> GpuLoad;
        ask outside_mps(gpu: &GpuUuid) -> Vec<u32>;
        tell compute_capability(gpu: &GpuUuid) -> (u32, u32);
        ask memory_limits(gpu: &GpuUuid, cgroup: &Path) -> MemoryLimits;
        tell label(gpu: &GpuUuid, profile: u32) -> Label;
        tell mig_uuid(gpu: &GpuUuid, gi: u32, ci: u32) -> String;
        tell is_filled_by(gpu: &GpuUuid, gi: u32, ci: &ComputeInstance) -> bool;
        tell used_memory(gpu: &GpuUuid, mig: Option<(u32, u32)>) -> u64;
        ask processes(gpu: &GpuUuid, gi: u32, ci: u32) -> Vec<u32>;
    }
}

impl Mig for Metered<'_> {
    forward! {
        tell set_mig_mode(gpu: &GpuUuid, on: bool) -> ModeChange;
        tell create_gpu_instance(gpu: &GpuUuid, profile: &Profile, at: Placement) -> u32;
        tell create_compute_instance(gpu: &GpuUuid, gi: u32) -> u32;
        tell create_part(gpu: &GpuUuid, gi: u32, slices: u32) -> u32;
        tell destroy_compute_instance(gpu: &GpuUuid, gi: u32, ci: u32) -> ();
        tell destroy_gpu_instance(gpu: &GpuUuid, gi: u32) -> ();
    }
}

impl LimitMemory for Metered<'_> {
    forward! {
        tell set_memory_limits(gpu: &GpuUuid, cgroup: &Path, limits: MemoryLimits) -> ();
    }
}
