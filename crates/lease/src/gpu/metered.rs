//! A session whose calls are timed, and whose failures are told to a listener.

use super::nvml::Session;
use super::{
    DetailedGpu, DriverError, Label, LimitMemory, MemoryLimits, Mig, ModeChange, Queries, Result,
};
use crate::model::{
    ComputeInstance, GpuLoad, GpuUuid, ListedInstance, Part, Placement, Profile, Snapshot,
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

impl Queries for Metered<'_> {
    fn prepare(&self) -> Result<()> {
        self.tell(Queries::prepare)
    }

    fn snapshot(&self) -> Result<Snapshot> {
        self.tell(Queries::snapshot)
    }

    fn offered_profiles(&self, gpu: &GpuUuid) -> Result<Vec<Profile>> {
        self.tell(|s| s.offered_profiles(gpu))
    }

    fn free_instances(&self, gpu: &GpuUuid, profile: u32) -> Result<u32> {
        self.tell(|s| s.free_instances(gpu, profile))
    }

    fn instances_of(&self, gpu: &GpuUuid, profile: u32) -> Result<Vec<ListedInstance>> {
        self.tell(|s| s.instances_of(gpu, profile))
    }

    fn load(&self, gpu: &GpuUuid) -> Result<GpuLoad> {
        self.tell(|s| s.load(gpu))
    }

    fn outside_mps(&self, gpu: &GpuUuid) -> Result<Vec<u32>> {
        self.ask(|s| s.outside_mps(gpu))
    }

    fn compute_capability(&self, gpu: &GpuUuid) -> Result<(u32, u32)> {
        self.tell(|s| s.compute_capability(gpu))
    }

    fn memory_limits(&self, gpu: &GpuUuid, cgroup: &Path) -> Result<MemoryLimits> {
        self.ask(|s| s.memory_limits(gpu, cgroup))
    }

    fn label(&self, gpu: &GpuUuid, profile: u32) -> Result<Label> {
        self.tell(|s| s.label(gpu, profile))
    }

    fn mig_uuid(&self, gpu: &GpuUuid, gpu_instance: u32, compute_instance: u32) -> Result<String> {
        self.tell(|s| s.mig_uuid(gpu, gpu_instance, compute_instance))
    }

    fn is_filled_by(&self, gpu: &GpuUuid, gpu_instance: u32, ci: &ComputeInstance) -> Result<bool> {
        self.tell(|s| s.is_filled_by(gpu, gpu_instance, ci))
    }

    fn used_memory(&self, gpu: &GpuUuid, mig: Option<(u32, u32)>) -> Result<u64> {
        self.tell(|s| s.used_memory(gpu, mig))
    }

    fn processes(
        &self,
        gpu: &GpuUuid,
        gpu_instance: u32,
        compute_instance: u32,
    ) -> Result<Vec<u32>> {
        self.ask(|s| s.processes(gpu, gpu_instance, compute_instance))
    }
}

impl Mig for Metered<'_> {
    fn set_mig_mode(&self, gpu: &GpuUuid, on: bool) -> Result<ModeChange> {
        self.tell(|s| s.set_mig_mode(gpu, on))
    }

    fn create_gpu_instance(&self, gpu: &GpuUuid, profile: &Profile, at: Placement) -> Result<u32> {
        self.tell(|s| s.create_gpu_instance(gpu, profile, at))
    }

    fn create_compute_instance(&self, gpu: &GpuUuid, gpu_instance: u32) -> Result<u32> {
        self.tell(|s| s.create_compute_instance(gpu, gpu_instance))
    }

    fn create_part(&self, gpu: &GpuUuid, gpu_instance: u32, part: Part) -> Result<u32> {
        self.tell(|s| s.create_part(gpu, gpu_instance, part))
    }

    fn destroy_compute_instance(
        &self,
        gpu: &GpuUuid,
        gpu_instance: u32,
        compute_instance: u32,
    ) -> Result<()> {
        self.tell(|s| s.destroy_compute_instance(gpu, gpu_instance, compute_instance))
    }

    fn destroy_gpu_instance(&self, gpu: &GpuUuid, gpu_instance: u32) -> Result<()> {
        self.tell(|s| s.destroy_gpu_instance(gpu, gpu_instance))
    }
}

impl LimitMemory for Metered<'_> {
    fn set_memory_limits(&self, gpu: &GpuUuid, cgroup: &Path, limits: MemoryLimits) -> Result<()> {
        self.tell(|s| s.set_memory_limits(gpu, cgroup, limits))
    }
}
