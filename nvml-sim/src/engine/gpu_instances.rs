//! Creating, destroying and counting GPU instances.

use super::Holds;
use super::code::Code;
use super::geometry::{Engines, GiProfile};
use super::machine::{Gpu, GpuInstance, Machine, Target};
use super::placement::{Placement, choose};

impl Gpu {
    fn taken(&self) -> impl Iterator<Item = Placement> + '_ {
        self.gpu_instances.iter().map(|gi| gi.placement)
    }

    /// The placements of a profile on which nothing lies yet.
    pub fn free_placements(&self, profile: &GiProfile) -> Vec<Placement> {
        profile
            .placements()
            .filter(|p| !self.taken().any(|t| t.overlaps(*p)))
            .collect()
    }

    fn used_engines(&self) -> Engines {
        let used = self
            .gpu_instances
            .iter()
            .map(|gi| self.profile_of(gi).engines);
        used.fold(Engines::default(), |sum, e| sum + e)
    }

    fn used_compute_slices(&self) -> u32 {
        self.gpu_instances
            .iter()
            .map(|gi| self.profile_of(gi).compute_slices)
            .sum()
    }

    /// How many more of a profile compute slices, engines and the profile's own maximum allow,
    /// wherever they would lie.
    fn allowance(&self, profile: &GiProfile) -> u32 {
        let model = self.model();
        let slices = (model.compute_slices - self.used_compute_slices()) / profile.compute_slices;
        let engines = (model.engines() - self.used_engines()).times(profile.engines);
        let same = self
            .gpu_instances
            .iter()
            .filter(|gi| gi.profile_id == profile.id)
            .count();
        slices.min(engines).min(profile.max_instances - same as u32)
    }

    /// How many more instances of a profile the driver says there is room for.
    pub fn remaining_capacity(&self, profile_id: u32) -> Result<u32, Code> {
        let profile = self
            .with_mig()?
            .model()
            .profile(profile_id)
            .ok_or(Code::NOT_SUPPORTED)?;
        Ok(self
            .allowance(profile)
            .min(self.free_placements(profile).len() as u32))
    }

    /// All instances of a profile.
    pub fn gpu_instances_of(&self, profile_id: u32) -> Result<Vec<&GpuInstance>, Code> {
        self.with_mig()?
            .model()
            .profile(profile_id)
            .ok_or(Code::INVALID_ARGUMENT)?;
        let mut all: Vec<_> = self
            .gpu_instances
            .iter()
            .filter(|gi| gi.profile_id == profile_id)
            .collect();
        all.sort_by_key(|gi| gi.id);
        Ok(all)
    }

    fn place(&self, profile: &GiProfile) -> Option<Placement> {
        let open: Vec<_> = self
            .model()
            .profiles
            .iter()
            .flat_map(|p| self.free_placements(p))
            .collect();
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
        let profile = it
            .model()
            .profile(profile_id)
            .ok_or(Code::INVALID_ARGUMENT)?;
        if placement.is_some_and(|p| !profile.placements().any(|q| q == p)) {
            return Err(Code::INVALID_ARGUMENT);
        }
        // The first instance changes how the GPU works, so nobody may be using it whole.
        if it.gpu_instances.is_empty()
            && holds.held(Target {
                gpu,
                gi: None,
                ci: None,
            })
        {
            return Err(Code::IN_USE);
        }
        if it.allowance(profile) == 0 {
            return Err(Code::INSUFFICIENT_RESOURCES);
        }
        let placement = match placement {
            Some(p) if it.free_placements(profile).contains(&p) => p,
            Some(_) => return Err(Code::INSUFFICIENT_RESOURCES),
            None => it.place(profile).ok_or(Code::INSUFFICIENT_RESOURCES)?,
        };
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
        let held = holds.held(Target {
            gpu,
            gi: Some(gi),
            ci: None,
        });
        if !it.compute_instances.is_empty() || held {
            return Err(Code::IN_USE);
        }
        self.gpu_mut(gpu)?.gpu_instances.retain(|it| it.id != gi);
        Ok(())
    }
}
