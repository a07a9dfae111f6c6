//! What is free on one GPU, in bits: a bit for each memory slice. Memory slices, compute slices and
//! engines are limits of their own; the driver may still refuse, and then the decision is made again
//! without that place.

use crate::model::{Gpu, Placement, Profile};

/// A place that is spoken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    pub gpu: String,
    pub profile_id: u32,
    pub placement: Placement,
}

/// A set of memory slices.
pub type Slices = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lying {
    pub profile_id: u32,
    pub at: Placement,
    pub slices: Slices,
    /// Kept for the next, and nobody's: it counts as free.
    pub idle: bool,
    /// In a search for what to move: which of the movable ones it is.
    pub movable: Option<usize>,
}

impl Lying {
    pub fn new(profile_id: u32, at: Placement) -> Self {
        Lying {
            profile_id,
            at,
            slices: slices(at),
            idle: false,
            movable: None,
        }
    }
}

#[derive(Clone)]
pub struct Room<'a> {
    pub gpu: &'a Gpu,
    pub lying: Vec<Lying>,
    /// Every place that the driver offers, profile after profile; `ends` says where each one's end.
    windows: Vec<Slices>,
    ends: Vec<usize>,
    limit: Parts,
    all: Slices,
}

/// Media and copy engines and compute slices, in one order.
pub type Parts = [u32; 6];

impl<'a> Room<'a> {
    pub fn new(gpu: &'a Gpu, reserved: &[Reserved], idle: &[Reserved]) -> Self {
        Room::without(gpu, &[], reserved, idle)
    }

    /// As if these instances were not there.
    pub fn without(
        gpu: &'a Gpu,
        gone: &[Reserved],
        reserved: &[Reserved],
        idle: &[Reserved],
    ) -> Self {
        let mut room = Room::empty(gpu);
        let here = |r: &&Reserved| r.gpu == gpu.uuid;
        let is_one = |of: &[Reserved], id: u32, at: Placement| {
            let mut of = of.iter().filter(here);
            of.any(|r| r.profile_id == id && r.placement == at)
        };
        let is_idle = |id, at| is_one(idle, id, at);
        for i in &gpu.instances {
            if is_one(gone, i.profile_id, i.placement) {
                continue;
            }
            room.lying.push(Lying {
                idle: is_idle(i.profile_id, i.placement),
                ..Lying::new(i.profile_id, i.placement)
            });
        }
        for r in reserved.iter().filter(here) {
            match room.lying.iter_mut().find(|l| l.at == r.placement) {
                Some(lying) => lying.idle = false,
                None => room.lying.push(Lying::new(r.profile_id, r.placement)),
            }
        }
        room
    }

    /// As if nothing lay on it.
    pub fn empty(gpu: &'a Gpu) -> Self {
        let places = gpu.profiles.iter().map(|p| p.placements.len()).sum();
        let mut windows = Vec::with_capacity(places);
        let mut ends = Vec::with_capacity(gpu.profiles.len());
        for profile in &gpu.profiles {
            windows.extend(profile.placements.iter().map(|p| slices(*p)));
            ends.push(windows.len());
        }
        Room {
            gpu,
            lying: Vec::with_capacity(8),
            all: windows.iter().fold(0, |all, w| all | w),
            windows,
            ends,
            limit: Room::limit(gpu),
        }
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

    /// What is not ours, and stays for all we know.
    pub fn of_others(gpu: &'a Gpu, ours: &[Reserved]) -> Self {
        let is_ours = |at: Placement| ours.iter().any(|r| r.gpu == gpu.uuid && r.placement == at);
        let mut room = Room::new(gpu, &[], &[]);
        room.lying.retain(|l| !is_ours(l.at));
        room
    }

    pub fn with(&self, profile: &Profile, at: Placement) -> Self {
        let mut more = self.clone();
        more.lying.push(Lying::new(profile.id, at));
        more
    }

    /// Where the profile could go now, what is idle out of the way.
    pub fn places<'p>(&self, profile: &'p Profile) -> impl Iterator<Item = Placement> + use<'p> {
        let free = self.free();
        let any = self.lacks(profile, self.taken()).is_none();
        let places = profile.placements.iter().copied();
        places.filter(move |at| any && slices(*at) & !free == 0)
    }

    pub fn taken(&self) -> impl Iterator<Item = &Lying> + Clone {
        self.lying.iter().filter(|l| !l.idle)
    }

    pub fn free(&self) -> Slices {
        self.taken().fold(self.all, |free, l| free & !l.slices)
    }

    pub fn free_slices(&self) -> u32 {
        self.free().count_ones()
    }

    pub fn total_slices(&self) -> u32 {
        self.all.count_ones()
    }

    /// The idle slices that have to go before the profile can be made there.
    pub fn in_the_way(&self, profile: &Profile, at: Placement) -> Vec<Placement> {
        if self.lying.iter().all(|l| !l.idle) || self.is_idle(profile, at) {
            return Vec::new();
        }
        let here = slices(at);
        let (mut going, mut staying): (Vec<&Lying>, Vec<&Lying>) = self
            .lying
            .iter()
            .filter(|l| l.idle)
            .partition(|l| l.slices & here != 0);
        // Engines and compute slices that idle ones hold elsewhere.
        while let Some(lack) = self.lacks(profile, self.taken().chain(staying.iter().copied())) {
            let Some(which) = staying.iter().position(|l| self.frees(lack, profile, l)) else {
                break;
            };
            going.push(staying.remove(which));
        }
        going.into_iter().map(|l| l.at).collect()
    }

    pub fn is_idle(&self, profile: &Profile, at: Placement) -> bool {
        let is = |l: &Lying| l.idle && l.profile_id == profile.id && l.at == at;
        self.lying.iter().any(is)
    }

    /// Of which one more of the profile beside these would be too much.
    pub fn lacks<'l>(
        &self,
        profile: &Profile,
        beside: impl Iterator<Item = &'l Lying>,
    ) -> Option<Lack> {
        let mut used = parts(profile);
        let mut same = 0;
        for lying in beside {
            same += u32::from(lying.profile_id == profile.id);
            if let Some(p) = self.gpu.profile(lying.profile_id) {
                for (sum, part) in used.iter_mut().zip(parts(p)) {
                    *sum += part;
                }
            }
        }
        if same >= profile.max_instances {
            return Some(Lack::OfProfile);
        }
        let over = used.iter().zip(self.limit).position(|(u, most)| *u > most);
        over.map(Lack::OfPart)
    }

    /// For each memory slice, which of `lying` has it.
    pub fn slots(&self) -> Vec<Option<usize>> {
        let of = |slot: u32| self.lying.iter().position(|l| l.slices >> slot & 1 == 1);
        (0..self.total_slices()).map(of).collect()
    }

    /// Whether it is one of those that use up what the profile lacks.
    pub fn frees(&self, lack: Lack, profile: &Profile, lying: &Lying) -> bool {
        match lack {
            Lack::OfProfile => lying.profile_id == profile.id,
            Lack::OfPart(part) => {
                let of = self.gpu.profile(lying.profile_id);
                of.is_some_and(|p| parts(p)[part] > 0)
            }
        }
    }

    pub fn name(&self, profile_id: u32) -> String {
        let known = self.gpu.profile(profile_id);
        known.map_or_else(|| profile_id.to_string(), |p| p.name.clone())
    }

    /// The same model with the same on it; of two that can be moved `as_movable` says.
    pub fn is_like(&self, other: &Room<'_>, as_movable: impl Fn(usize, usize) -> bool) -> bool {
        let same = |a: &Lying, b: &Lying| {
            let is_movable = match (a.movable, b.movable) {
                (Some(a), Some(b)) => as_movable(a, b),
                (a, b) => a == b,
            };
            is_movable && a.profile_id == b.profile_id && a.at == b.at
        };
        self.lying.len() == other.lying.len()
            && self
                .lying
                .iter()
                .all(|a| other.lying.iter().any(|b| same(a, b)))
            && self.gpu.profiles == other.gpu.profiles
    }

    /// Over all profiles, the memory slices of these free ones that no place of the profile covers
    /// which lies in them whole; each by the weight of its profile.
    pub fn uncovered(&self, free: Slices, weights: &[i64]) -> i64 {
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

/// What one more would be too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The GPU holds so many of that profile and no more.
    OfProfile,
    /// An index into `PARTS`.
    OfPart(usize),
}

impl Lack {
    pub fn of(self, profile: &Profile) -> String {
        match self {
            Lack::OfProfile => format!("instances of {}", profile.name),
            Lack::OfPart(part) => PARTS[part].to_owned(),
        }
    }
}

const PARTS: [&str; 6] = [
    "compute slices",
    "copy engines",
    "decoders",
    "encoders",
    "JPEG engines",
    "optical flow accelerators",
];

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

pub fn slices(at: Placement) -> Slices {
    let ones = |n: u32| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    ones(at.start.saturating_add(at.size)) & !ones(at.start)
}
