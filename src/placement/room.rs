//! What is free on one GPU. Memory slices, compute slices and engines are limits of their own; the
//! driver may still refuse, and then the decision is made again without that place.

use crate::model::{Gpu, Placement, Profile};

/// A place that is spoken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    pub gpu: String,
    pub profile_id: u32,
    pub placement: Placement,
}

#[derive(Clone)]
pub struct Room<'a> {
    gpu: &'a Gpu,
    taken: Vec<(u32, Placement)>,
    /// Kept for the next; it counts as free.
    idle: Vec<(u32, Placement)>,
}

/// Media and copy engines and compute slices, in one order.
pub type Parts = [u32; 6];

impl<'a> Room<'a> {
    pub fn new(gpu: &'a Gpu, reserved: &[Reserved], idle: &[Reserved]) -> Self {
        let here = idle.iter().filter(|i| i.gpu == gpu.uuid);
        let idle: Vec<_> = here.map(|i| (i.profile_id, i.placement)).collect();
        let mut taken: Vec<_> = gpu
            .instances
            .iter()
            .map(|i| (i.profile_id, i.placement))
            .filter(|i| !idle.contains(i))
            .collect();
        for r in reserved.iter().filter(|r| r.gpu == gpu.uuid) {
            if !taken.iter().any(|(_, at)| *at == r.placement) {
                taken.push((r.profile_id, r.placement));
            }
        }
        Room { gpu, taken, idle }
    }

    /// What is not ours, and stays for all we know.
    pub fn of_others(gpu: &'a Gpu, ours: &[Reserved]) -> Self {
        let is_ours = |at: Placement| ours.iter().any(|r| r.gpu == gpu.uuid && r.placement == at);
        let others = gpu.instances.iter().filter(|i| !is_ours(i.placement));
        Room {
            gpu,
            taken: others.map(|i| (i.profile_id, i.placement)).collect(),
            idle: Vec::new(),
        }
    }

    /// What would have to be destroyed first.
    pub fn idle_at(&self, at: Placement) -> impl Iterator<Item = Placement> {
        let places = self.idle.iter().map(|(_, place)| *place);
        places.filter(move |place| place.overlaps(at))
    }

    pub fn is_idle(&self, profile: &Profile, at: Placement) -> bool {
        self.idle.contains(&(profile.id, at))
    }

    pub fn with(&self, profile: &Profile, at: Placement) -> Self {
        let mut more = self.clone();
        more.taken.push((profile.id, at));
        more
    }

    /// Where the profile could go now.
    pub fn places(&self, profile: &Profile) -> Vec<Placement> {
        if !self.has_parts_for(profile) {
            return Vec::new();
        }
        profile
            .placements
            .iter()
            .copied()
            .filter(|p| self.is_free(*p))
            .collect()
    }

    pub fn is_free(&self, at: Placement) -> bool {
        !self.taken.iter().any(|(_, other)| other.overlaps(at))
    }

    pub fn free_slices(&self) -> u32 {
        self.free_mask().count_ones()
    }

    /// A bit for each free memory slice.
    pub fn free_mask(&self) -> u64 {
        self.taken
            .iter()
            .fold(mask(0, total_slices(self.gpu)), |free, (_, at)| {
                free & !mask(at.start, at.size)
            })
    }

    #[cfg(test)]
    pub fn taken(&self) -> impl Iterator<Item = (u32, Placement)> {
        self.taken.iter().copied()
    }

    #[cfg(test)]
    pub fn without(&self, at: Placement) -> Self {
        let mut fewer = self.clone();
        fewer.taken.retain(|(_, place)| *place != at);
        fewer
    }

    fn has_parts_for(&self, profile: &Profile) -> bool {
        let same = self
            .taken
            .iter()
            .filter(|(id, _)| *id == profile.id)
            .count();
        if same >= profile.max_instances as usize {
            return false;
        }
        let limit = Room::limit(self.gpu);
        let mut used = parts(profile);
        for taken in self
            .taken
            .iter()
            .filter_map(|(id, _)| self.gpu.profile(*id))
        {
            for (sum, part) in used.iter_mut().zip(parts(taken)) {
                *sum += part;
            }
        }
        used.iter().zip(limit).all(|(used, limit)| *used <= limit)
    }

    /// The whole GPU's is what its largest profile has.
    pub fn limit(gpu: &Gpu) -> Parts {
        let mut limit = Parts::default();
        for p in &gpu.profiles {
            for (most, part) in limit.iter_mut().zip(parts(p)) {
                *most = part.max(*most);
            }
        }
        limit
    }
}

pub fn parts(p: &Profile) -> Parts {
    [
        p.compute_slices,
        p.copy_engines,
        p.decoders,
        p.encoders,
        p.jpegs,
        p.ofas,
    ]
}

pub fn total_slices(gpu: &Gpu) -> u32 {
    gpu.profiles
        .iter()
        .flat_map(|p| &p.placements)
        .map(|p| p.start + p.size)
        .max()
        .unwrap_or(0)
}

pub fn mask(start: u32, size: u32) -> u64 {
    let ones = |n: u32| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    ones(start.saturating_add(size)) & !ones(start)
}
