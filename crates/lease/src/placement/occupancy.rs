//! The free memory slices of one GPU, a bit for each. Memory slices, compute slices and engines are
//! separate limits. The driver may still refuse a slot that looks free here.

use crate::model::{Gpu, GpuUuid, Placement, Profile};

/// A placement of a profile on one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The UUID of the GPU.
    pub gpu: GpuUuid,
    /// The id of the profile.
    pub profile_id: u32,
    /// The memory slices.
    pub placement: Placement,
}

impl Slot {
    /// Returns a place on a GPU.
    pub fn new(gpu: &GpuUuid, profile_id: u32, placement: Placement) -> Slot {
        Slot {
            gpu: gpu.clone(),
            profile_id,
            placement,
        }
    }

    /// Says whether the slot is at these memory slices, whatever its profile.
    pub(crate) fn is_at(&self, gpu: &GpuUuid, at: Placement) -> bool {
        self.gpu == *gpu && self.placement == at
    }
}

/// A set of memory slices.
pub(crate) type SliceSet = u64;

/// A slice that takes room on a GPU, or will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The id of its profile.
    pub profile_id: u32,
    /// Its placement.
    pub at: Placement,
    /// The same placement as a set of memory slices.
    pub slices: SliceSet,
    /// Says whether runmig keeps the slice for the next request. Such a slice has no holder and counts as
    /// free.
    pub idle: bool,
    /// Its index among the movable slices, in a search for moves.
    pub movable: Option<usize>,
}

impl Occupant {
    pub(crate) fn new(profile_id: u32, at: Placement) -> Self {
        Occupant {
            profile_id,
            at,
            slices: slice_set(at),
            idle: false,
            movable: None,
        }
    }
}

/// One GPU and the slices that take room on it.
#[derive(Clone)]
pub struct Occupancy<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// The occupants: existing instances and reserved slots.
    pub occupants: Vec<Occupant>,
    /// All placements that the driver offers, profile after profile. `ends` holds the end of each profile's.
    windows: Vec<SliceSet>,
    ends: Vec<usize>,
    limit: Parts,
    all: SliceSet,
}

/// Amounts of compute slices and of engines, in the order of [`PARTS`].
pub type Parts = [u32; 6];

impl<'a> Occupancy<'a> {
    pub(crate) fn new(gpu: &'a Gpu, reserved: &[Slot], idle: &[Slot]) -> Self {
        Occupancy::without(gpu, &[], reserved, idle)
    }

    /// Leaves out the `evicted` instances.
    pub(crate) fn without(
        gpu: &'a Gpu,
        evicted: &[Slot],
        reserved: &[Slot],
        idle: &[Slot],
    ) -> Self {
        let mut occupancy = Occupancy::empty(gpu);
        let here = |r: &&Slot| r.gpu == gpu.uuid;
        let is_one = |of: &[Slot], id: u32, at: Placement| {
            let mut of = of.iter().filter(here);
            of.any(|r| r.profile_id == id && r.placement == at)
        };
        for i in &gpu.instances {
            let (id, at) = (i.profile_id, i.placement);
            if !is_one(evicted, id, at) {
                occupancy.occupants.push(Occupant {
                    idle: is_one(idle, id, at),
                    ..Occupant::new(id, at)
                });
            }
        }
        for r in reserved.iter().filter(here) {
            let new = Occupant::new(r.profile_id, r.placement);
            match occupancy.occupants.iter_mut().find(|l| l.at == new.at) {
                Some(occupant) => occupant.idle = false,
                None => occupancy.occupants.push(new),
            }
        }
        occupancy
    }

    /// Shows the GPU without any occupant.
    pub fn empty(gpu: &'a Gpu) -> Self {
        let places = gpu.profiles.iter().map(|p| p.placements.len()).sum();
        let mut windows = Vec::with_capacity(places);
        let mut ends = Vec::with_capacity(gpu.profiles.len());
        for profile in &gpu.profiles {
            windows.extend(profile.placements.iter().map(|p| slice_set(*p)));
            ends.push(windows.len());
        }
        Occupancy {
            gpu,
            occupants: Vec::with_capacity(8),
            all: windows.iter().fold(0, |all, w| all | w),
            windows,
            ends,
            limit: Occupancy::limit(gpu),
        }
    }

    /// Returns the parts of the whole GPU: those of its largest profiles.
    pub fn limit(gpu: &Gpu) -> Parts {
        let mut limit = Parts::default();
        for p in &gpu.profiles {
            for (most, part) in limit.iter_mut().zip(parts(p)) {
                *most = part.max(*most);
            }
        }
        limit
    }

    /// Keeps only the instances that runmig did not make. They may stay for ever.
    pub(crate) fn foreign(gpu: &'a Gpu, ours: &[Slot]) -> Self {
        let is_ours = |at: Placement| ours.iter().any(|r| r.is_at(&gpu.uuid, at));
        let mut occupancy = Occupancy::new(gpu, &[], &[]);
        occupancy.occupants.retain(|l| !is_ours(l.at));
        occupancy
    }

    pub(crate) fn with(&self, profile: &Profile, at: Placement) -> Self {
        let mut more = self.clone();
        more.occupants.push(Occupant::new(profile.id, at));
        more
    }

    /// Returns the placements that are free for the profile, with the idle slices evicted.
    pub(crate) fn places<'p>(
        &self,
        profile: &'p Profile,
    ) -> impl Iterator<Item = Placement> + use<'p> {
        let free = self.free();
        let any = self.exhausted(profile, self.taken()).is_none();
        let places = profile.placements.iter().copied();
        places.filter(move |at| any && slice_set(*at) & !free == 0)
    }

    pub(crate) fn taken(&self) -> impl Iterator<Item = &Occupant> + Clone {
        self.occupants.iter().filter(|l| !l.idle)
    }

    pub(crate) fn free(&self) -> SliceSet {
        self.taken().fold(self.all, |free, l| free & !l.slices)
    }

    /// Returns the number of free memory slices. Slices of idle instances count as free.
    pub fn free_slices(&self) -> u32 {
        self.free().count_ones()
    }

    /// Returns the number of memory slices of the GPU.
    pub fn total_slices(&self) -> u32 {
        self.all.count_ones()
    }

    /// Returns the idle slices that runmig has to destroy before it makes the profile there.
    pub(crate) fn evictions(&self, profile: &Profile, at: Placement) -> Vec<Placement> {
        if self.occupants.iter().all(|l| !l.idle) || self.is_idle(profile, at) {
            return Vec::new();
        }
        let idle = self.occupants.iter().filter(|l| l.idle);
        let going = self.in_the_way(profile, at, self.taken(), idle, |_| 0);
        going.unwrap_or_default().iter().map(|l| l.at).collect()
    }

    /// Returns those of `others` that have to go for a profile at a place: all that overlap it, and then the ones of the least
    /// rank that hold compute slices and engines elsewhere. None if it has no room there beside those that stay.
    pub(super) fn in_the_way<'l, K: Ord>(
        &self,
        profile: &Profile,
        at: Placement,
        stay: impl Iterator<Item = &'l Occupant> + Clone,
        others: impl Iterator<Item = &'l Occupant>,
        rank: impl Fn(&Occupant) -> K,
    ) -> Option<Vec<Occupant>> {
        let here = slice_set(at);
        let (mut going, mut left): (Vec<&Occupant>, Vec<&Occupant>) =
            others.partition(|l| l.slices & here != 0);
        while let Some(what) = self.exhausted(profile, stay.clone().chain(left.iter().copied())) {
            let having = left.iter().enumerate();
            let having = having.filter(|(_, l)| self.frees(what, profile, l));
            let (n, _) = having.min_by_key(|(_, l)| rank(l))?;
            going.push(left.remove(n));
        }
        Some(going.into_iter().copied().collect())
    }

    pub(crate) fn is_idle(&self, profile: &Profile, at: Placement) -> bool {
        let is = |l: &Occupant| l.idle && l.profile_id == profile.id && l.at == at;
        self.occupants.iter().any(is)
    }

    /// Returns the part that one more slice of the profile beside `others` would exceed.
    pub(crate) fn exhausted<'l>(
        &self,
        profile: &Profile,
        others: impl Iterator<Item = &'l Occupant>,
    ) -> Option<Exhausted> {
        let mut used = parts(profile);
        let mut same = 0;
        for occupant in others {
            same += u32::from(occupant.profile_id == profile.id);
            if let Some(p) = self.gpu.profile(occupant.profile_id) {
                for (sum, part) in used.iter_mut().zip(parts(p)) {
                    *sum += part;
                }
            }
        }
        if same >= profile.max_instances {
            return Some(Exhausted::Instances);
        }
        let over = used.iter().zip(self.limit).position(|(u, most)| *u > most);
        over.map(|part| PARTS[part])
    }

    /// Returns for each memory slice the index of its occupant in `occupants`.
    pub fn by_slice(&self) -> Vec<Option<usize>> {
        let has = |l: &Occupant, slice: u32| l.slices >> slice & 1 == 1;
        let of = |slice: u32| self.occupants.iter().position(|l| has(l, slice));
        (0..self.total_slices()).map(of).collect()
    }

    /// Says whether the occupant uses some of the part that the profile lacks.
    pub(crate) fn frees(&self, what: Exhausted, profile: &Profile, occupant: &Occupant) -> bool {
        let Some(part) = PARTS.iter().position(|part| *part == what) else {
            return occupant.profile_id == profile.id;
        };
        let of = self.gpu.profile(occupant.profile_id);
        of.is_some_and(|p| parts(p)[part] > 0)
    }

    /// Returns the name of a profile, or its id if the GPU does not offer it.
    pub fn name(&self, profile_id: u32) -> String {
        let known = self.gpu.profile(profile_id);
        known.map_or_else(|| profile_id.to_string(), |p| p.name.clone())
    }

    /// Says whether both are the same model with the same occupants. `as_movable` compares two movable ones.
    pub(crate) fn is_like(
        &self,
        other: &Occupancy<'_>,
        as_movable: impl Fn(usize, usize) -> bool,
    ) -> bool {
        let same = |a: &Occupant, b: &Occupant| {
            let is_movable = match (a.movable, b.movable) {
                (Some(a), Some(b)) => as_movable(a, b),
                (a, b) => a == b,
            };
            is_movable && a.profile_id == b.profile_id && a.at == b.at
        };
        let (ours, others) = (&self.occupants, &other.occupants);
        ours.len() == others.len()
            && ours.iter().all(|a| others.iter().any(|b| same(a, b)))
            && self.gpu.profiles == other.gpu.profiles
    }

    /// Returns the sum over all profiles of the free memory slices that no free placement of the profile
    /// covers, times the weight of the profile.
    pub(crate) fn uncovered(&self, free: SliceSet, weights: &[i64]) -> i64 {
        let (mut lost, mut start) = (0, 0);
        for (&end, weight) in self.ends.iter().zip(weights) {
            let mut covered = 0;
            for window in &self.windows[start..end] {
                if window & !free == 0 {
                    covered |= window;
                }
            }
            lost += i64::from((free & !covered).count_ones()) * weight;
            start = end;
        }
        lost
    }
}

/// A limit of a GPU that one more slice would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The GPU holds no more slices of the profile.
    Instances,
    /// Too few compute slices are free.
    ComputeSlices,
    /// Too few copy engines are free.
    CopyEngines,
    /// Too few video decoders (NVDEC) are free.
    Decoders,
    /// Too few video encoders (NVENC) are free.
    Encoders,
    /// Too few JPEG engines are free.
    JpegEngines,
    /// Too few optical flow accelerators are free.
    OpticalFlowAccelerators,
}

/// The order of [`Parts`].
pub const PARTS: [Exhausted; 6] = [
    Exhausted::ComputeSlices,
    Exhausted::CopyEngines,
    Exhausted::Decoders,
    Exhausted::Encoders,
    Exhausted::JpegEngines,
    Exhausted::OpticalFlowAccelerators,
];

/// Returns the parts of one slice of a profile.
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

pub(crate) fn slice_set(at: Placement) -> SliceSet {
    let ones = |n: u32| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    ones(at.start.saturating_add(at.size)) & !ones(at.start)
}
