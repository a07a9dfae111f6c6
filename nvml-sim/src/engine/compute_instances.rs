//! Compute instances: the profiles a GPU instance offers, creating, destroying and counting them.

use super::Holds;
use super::code::Code;
use super::geometry::{GiProfile, Model};
use super::machine::{ComputeInstance, Gpu, GpuInstance, Machine, NvlProfile, Target};
use super::placement::{Placement, choose};

/// `NVML_COMPUTE_INSTANCE_PROFILE_COUNT` of nvml.h 13. The profile ids are the profile indices.
pub const CI_PROFILE_COUNT: u32 = 9;

/// `NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1`: one slice with more multiprocessors than usual.
pub const ONE_SLICE_REV1: u32 = 7;

/// `NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE_NVL`: the slices of profile 4, for work on several GPUs.
const SEVEN_SLICES: u32 = 4;
const SEVEN_SLICES_NVL: u32 = 8;

/// The release branch whose drivers list it. Published for one of September 2026; which was the first is not known.
pub const NVL_SINCE: u32 = 615;

/// No GPU instance holds more: ids go from 0 to 7.
const MAX_COMPUTE_INSTANCES: u32 = 8;

/// Profile index and slices; the indices are those of nvml.h.
const BY_SLICES: &[(u32, u32)] = &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 7)];

/// A compute instance profile as one GPU instance offers it.
#[derive(Clone, PartialEq, Debug)]
pub struct CiProfile {
    pub id: u32,
    pub slices: u32,
    pub sm: u32,
    /// `1g.10gb`, or `1c.2g.20gb` when it is a part of its GPU instance.
    pub name: String,
    pub placements: Vec<Placement>,
}

impl Model {
    /// The compute instance profiles inside a GPU instance profile, by id.
    pub fn ci_profiles(&self, gi: &GiProfile) -> Vec<CiProfile> {
        // As published: the media engines are the GPU instance's, and only its name says so.
        let name = gi.name.trim_end_matches("+me");
        let part = |id, size, sm, starts: &[u32]| {
            let place = |&start| Placement { start, size };
            CiProfile {
                id,
                slices: size,
                sm,
                name: format!("{size}c.{name}"),
                placements: starts.iter().map(place).collect(),
            }
        };
        let smaller = BY_SLICES.iter().filter(|(_, n)| *n < gi.compute_slices);
        let smaller = smaller.filter_map(|&(id, slices)| {
            let starts = starts(gi.compute_slices, slices)?;
            Some(part(id, slices, slices * self.sm_per_slice(), starts))
        });
        let mut all: Vec<_> = smaller.collect();
        all.push(CiProfile {
            name: name.into(),
            ..part(gi.full_ci, gi.compute_slices, gi.sm, &[0])
        });
        // Seen on Hopper in instances of two slices; what larger ones offer is not known.
        if let Some(rev1) = self.rev1().filter(|_| gi.compute_slices == 2) {
            all.push(part(ONE_SLICE_REV1, 1, rev1.sm, &[0]));
        }
        all.sort_by_key(|p| p.id);
        all
    }

    pub fn ci_profile(&self, gi: &GiProfile, id: u32) -> Option<CiProfile> {
        self.ci_profiles(gi).into_iter().find(|p| p.id == id)
    }
}

/// Returns the possible starts of a part with so many slices in a GPU instance with so many.
fn starts(gi_slices: u32, slices: u32) -> Option<&'static [u32]> {
    Some(match (gi_slices, slices) {
        (n, 1) => &[0, 1, 2, 3, 4, 5, 6][..n as usize],
        (3, 2) => &[0],
        (4, 2) => &[0, 2],
        (7, 2) => &[0, 2, 4],
        (7, 3) => &[0, 4],
        (7, 4) => &[0],
        _ => return None,
    })
}

impl Gpu {
    pub fn ci_profiles_of(&self, gi: &GpuInstance) -> Vec<CiProfile> {
        let mut all = self.model().ci_profiles(self.profile_of(gi));
        let plain = all.iter().find(|p| p.id == SEVEN_SLICES).cloned();
        all.extend(plain.filter(|_| self.nvl.is_some()).map(|plain| CiProfile {
            id: SEVEN_SLICES_NVL,
            ..plain
        }));
        all
    }

    /// A profile that the GPU instance offers.
    pub fn ci_profile_of(&self, gi: &GpuInstance, profile_id: u32) -> Result<CiProfile, Code> {
        let all = self.ci_profiles_of(gi);
        let profile = all.into_iter().find(|p| p.id == profile_id);
        profile.ok_or(Code::NOT_SUPPORTED)
    }

    fn free_ci_placements(&self, gi: &GpuInstance, profile: &CiProfile) -> Vec<Placement> {
        let mut free = profile.placements.clone();
        for ci in &gi.compute_instances {
            free.retain(|p| !ci.placement.overlaps(*p));
        }
        free
    }

    /// How many more the multiprocessors left allow: a profile of one slice can take more than a
    /// slice's share.
    fn ci_allowance(&self, gi: &GpuInstance, profile: &CiProfile) -> u32 {
        let sm_of =
            |ci: &ComputeInstance| self.ci_profile_of(gi, ci.profile_id).map_or(0, |p| p.sm);
        let used: u32 = gi.compute_instances.iter().map(sm_of).sum();
        let ids_left = MAX_COMPUTE_INSTANCES - gi.compute_instances.len() as u32;
        ((self.profile_of(gi).sm - used) / profile.sm).min(ids_left)
    }

    /// How many instances of a profile the GPU instance takes when it is empty.
    pub fn ci_instance_count(&self, gi: &GpuInstance, profile: &CiProfile) -> u32 {
        if profile.id == SEVEN_SLICES_NVL && self.nvl == Some(NvlProfile::Empty) {
            return 0;
        }
        (self.profile_of(gi).sm / profile.sm).min(profile.placements.len() as u32)
    }

    pub fn ci_remaining_capacity(&self, gi: &GpuInstance, profile_id: u32) -> Result<u32, Code> {
        let profile = self.ci_profile_of(gi, profile_id)?;
        let free = self.free_ci_placements(gi, &profile).len() as u32;
        Ok(self.ci_allowance(gi, &profile).min(free))
    }

    fn place_ci(&self, gi: &GpuInstance, profile: &CiProfile) -> Option<Placement> {
        let profiles = self.ci_profiles_of(gi).into_iter();
        let open = profiles.flat_map(|p| self.free_ci_placements(gi, &p));
        let open: Vec<_> = open.collect();
        choose(self.free_ci_placements(gi, profile).into_iter(), &open)
    }
}

impl Machine {
    pub fn create_compute_instance(
        &mut self,
        gpu: u32,
        gi: u32,
        profile_id: u32,
        placement: Option<Placement>,
    ) -> Result<ComputeInstance, Code> {
        let it = self.gpu(gpu)?.with_mig()?;
        let parent = it.gpu_instance(gi)?;
        let profile = it.ci_profile_of(parent, profile_id)?;
        if profile.id == SEVEN_SLICES_NVL && it.nvl != Some(NvlProfile::Made) {
            return Err(Code::NOT_SUPPORTED);
        }
        if placement.is_some_and(|p| !profile.placements.contains(&p)) {
            return Err(Code::INVALID_ARGUMENT);
        }
        if it.ci_allowance(parent, &profile) == 0 {
            return Err(Code::INSUFFICIENT_RESOURCES);
        }
        let full = Code::INSUFFICIENT_RESOURCES;
        let is_free = |p: &Placement| it.free_ci_placements(parent, &profile).contains(p);
        let place = || it.place_ci(parent, &profile);
        let placement = placement.map_or_else(place, |p| Some(p).filter(is_free));
        let placement = placement.ok_or(full)?;
        let mut ids = 0..MAX_COMPUTE_INSTANCES;
        let id = ids.find(|id| parent.compute_instance(*id).is_err());
        let id = id.ok_or(full)?;
        let made = ComputeInstance {
            id,
            profile_id,
            placement,
            generation: self.generation(),
        };
        let parent = self.gpu_mut(gpu)?.gpu_instance_mut(gi)?;
        parent.compute_instances.push(made.clone());
        Ok(made)
    }

    pub fn destroy_compute_instance(
        &mut self,
        gpu: u32,
        gi: u32,
        ci: u32,
        holds: &dyn Holds,
    ) -> Result<(), Code> {
        let parent = self.gpu(gpu)?.with_mig()?.gpu_instance(gi)?;
        parent.compute_instance(ci)?;
        if holds.held(Target::new(gpu, Some(gi), Some(ci))) {
            return Err(Code::IN_USE);
        }
        let parent = self.gpu_mut(gpu)?.gpu_instance_mut(gi)?;
        parent.compute_instances.retain(|it| it.id != ci);
        Ok(())
    }
}
