//! Creating, destroying and counting GPU instances.

use super::Holds;
use super::code::Code;
use super::geometry::{Engines, GiProfile, is_profile_id};
use super::machine::{Gpu, GpuInstance, Machine, Target};
use super::mig_mode::Mode;
use super::placement::{Placement, choose};

impl Gpu {
    /// The placements of a profile on which nothing lies yet.
    pub fn free_placements(&self, profile: &GiProfile) -> Vec<Placement> {
        let mut free: Vec<Placement> = profile.placements().collect();
        for gi in &self.gpu_instances {
            free.retain(|p| !gi.placement.overlaps(*p));
        }
        free
    }

    /// The profiles of its instances.
    fn used(&self) -> impl Iterator<Item = &GiProfile> {
        self.gpu_instances.iter().map(|gi| self.profile_of(gi))
    }

    /// How many more of a profile compute slices, engines and the profile's own maximum allow,
    /// wherever they would lie.
    fn allowance(&self, profile: &GiProfile) -> u32 {
        let model = self.model();
        let used: u32 = self.used().map(|p| p.compute_slices).sum();
        let slices = (model.compute_slices - used) / profile.compute_slices;
        let used = self
            .used()
            .fold(Engines::default(), |sum, p| sum + p.engines);
        let engines = (model.engines() - used).times(profile.engines);
        let same = self.used().filter(|p| p.id == profile.id).count();
        slices.min(engines).min(profile.max_instances - same as u32)
    }

    /// Looks a profile up by id, and gives `elsewhere` for one that only other GPUs have. Hardware
    /// with MIG off tells such an id (47, 65) from one that no GPU has (77). With MIG on nobody has
    /// looked, so this GPU supports neither.
    pub fn profile_or(
        &self,
        profile_id: u32,
        elsewhere: Result<Option<&'static GiProfile>, Code>,
    ) -> Result<Option<&'static GiProfile>, Code> {
        match self.of_mig_model()?.model().profile(profile_id) {
            Some(profile) => Ok(Some(profile)),
            None if self.mode == Mode::On => Err(Code::NOT_SUPPORTED),
            None if is_profile_id(profile_id) => elsewhere,
            None => Err(Code::INVALID_ARGUMENT),
        }
    }

    /// How many more instances of a profile the driver says there is room for. With MIG off that is
    /// what the GPU would hold with MIG on.
    pub fn remaining_capacity(&self, profile_id: u32) -> Result<u32, Code> {
        let Some(profile) = self.profile_or(profile_id, Ok(None))? else {
            return Ok(0);
        };
        let free = self.free_placements(profile).len() as u32;
        Ok(self.allowance(profile).min(free))
    }

    /// Returns the placements of a profile, in the driver's order; none for a profile of other GPUs.
    pub fn possible_placements(&self, profile_id: u32) -> Result<Vec<Placement>, Code> {
        let profile = self.profile_or(profile_id, Ok(None))?;
        Ok(profile.map_or_else(Vec::new, |p| p.placements().collect()))
    }

    /// All instances of a profile; none with MIG off.
    pub fn gpu_instances_of(&self, profile_id: u32) -> Result<Vec<&GpuInstance>, Code> {
        let profile = self.model().profile(profile_id);
        profile.ok_or(Code::INVALID_ARGUMENT)?;
        let mut all: Vec<_> = self.gpu_instances.iter().collect();
        all.retain(|gi| gi.profile_id == profile_id);
        all.sort_by_key(|gi| gi.id);
        Ok(all)
    }

    fn place(&self, profile: &GiProfile) -> Option<Placement> {
        let profiles = self.model().profiles.iter();
        let open: Vec<_> = profiles.flat_map(|p| self.free_placements(p)).collect();
        choose(self.free_placements(profile).into_iter(), &open)
    }
}

impl Machine {
    pub fn create_gpu_instance(
        &mut self,
        gpu: u32,
        profile_id: u32,
        placement: Option<Placement>,
        holds: &dyn Holds,
    ) -> Result<GpuInstance, Code> {
        let it = self.gpu(gpu)?.with_mig()?;
        let profile = it.model().profile(profile_id);
        let profile = profile.ok_or(Code::INVALID_ARGUMENT)?;
        if placement.is_some_and(|p| !profile.placements().any(|q| q == p)) {
            return Err(Code::INVALID_ARGUMENT);
        }
        // The first instance changes the GPU's operation, so no process may hold it whole.
        if it.gpu_instances.is_empty() && holds.held(Target::of_gpu(gpu)) {
            return Err(Code::IN_USE);
        }
        if it.allowance(profile) == 0 {
            return Err(Code::INSUFFICIENT_RESOURCES);
        }
        let is_free = |p: &Placement| it.free_placements(profile).contains(p);
        let place = || it.place(profile);
        let placement = placement.map_or_else(place, |p| Some(p).filter(is_free));
        let placement = placement.ok_or(Code::INSUFFICIENT_RESOURCES)?;
        let id = it.model().gpu_instance_id(placement, it.floor_swept);
        let generation = self.generation();
        let made = GpuInstance {
            id,
            profile_id,
            placement,
            generation,
            compute_instances: Vec::new(),
        };
        self.gpus[gpu as usize].gpu_instances.push(made.clone());
        Ok(made)
    }

    pub fn destroy_gpu_instance(
        &mut self,
        gpu: u32,
        gi: u32,
        holds: &dyn Holds,
    ) -> Result<(), Code> {
        let it = self.gpu(gpu)?.with_mig()?.gpu_instance(gi)?;
        let held = holds.held(Target::new(gpu, Some(gi), None));
        if !it.compute_instances.is_empty() || held {
            return Err(Code::IN_USE);
        }
        self.gpu_mut(gpu)?.gpu_instances.retain(|it| it.id != gi);
        Ok(())
    }

    /// Destroys a GPU instance and its compute instances.
    pub fn destroy_whole(&mut self, gpu: u32, gi: u32, holds: &dyn Holds) -> Result<(), Code> {
        let it = self.gpu(gpu)?.gpu_instance(gi)?;
        let parts: Vec<u32> = it.compute_instances.iter().map(|ci| ci.id).collect();
        for ci in parts {
            self.destroy_compute_instance(gpu, gi, ci, holds)?;
        }
        self.destroy_gpu_instance(gpu, gi, holds)
    }
}
