//! The place that each policy gives a slice. All but ours and the driver's are written here,
//! plainly.

use super::world::{Instance, Kind, World};
use nvml_sim::engine::{GiProfile, Gpu, Placement};
use runmig_lease::placement::{self, Constraints};
use std::cmp::Reverse;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The lowest GPU, the lowest start: InstaSlice, NVIDIA's DRA driver.
    FirstFit,
    /// The lowest GPU that has room, and there where the driver puts it: mig-parted, `nvidia-smi`.
    Driver,
    /// The GPU with the fewest free memory slices, the lowest start.
    BestFit,
    /// Fragmentation gradient descent.
    Gradient,
    /// `placement::choose`.
    Ours,
    /// Everything may move at every arrival. No policy; what none can do better than.
    Repack,
}

pub const ALL: [Policy; 6] = [
    Policy::FirstFit,
    Policy::Driver,
    Policy::BestFit,
    Policy::Gradient,
    Policy::Ours,
    Policy::Repack,
];

impl Policy {
    pub fn name(self) -> &'static str {
        match self {
            Policy::FirstFit => "first fit, lowest start",
            Policy::Driver => "first fit, the driver's order",
            Policy::BestFit => "best fit",
            Policy::Gradient => "fragmentation gradient",
            Policy::Ours => "runmig",
            Policy::Repack => "free repacking",
        }
    }

    pub fn place(self, world: &mut World, kind: &Kind) -> Option<Instance> {
        if self == Policy::Ours {
            let found =
                placement::choose(&world.snapshot, &[], &Constraints::one(&kind.slice)).ok()?;
            let at = Placement {
                start: found.placement.start,
                size: found.placement.size,
            };
            let (gpu, id) = (found.gpu.index, found.profile.id);
            let made = world.make(gpu, id, Some(at));
            return Some(made.expect("the driver has room where the product sees some"));
        }
        let gpus = world.machine.gpus.iter().zip(0..).zip(&kind.on);
        let mut with_room: Vec<(&Gpu, u32, &GiProfile)> = gpus
            .filter_map(|((gpu, index), profile)| Some((gpu, index, (*profile)?)))
            .filter(|(gpu, _, p)| gpu.remaining_capacity(p.id).expect("its own") > 0)
            .collect();
        // An amount of memory means the smallest profile under every policy.
        let size = |p: &GiProfile| (gigabytes(&p.name), p.compute_slices);
        let smallest = with_room.iter().map(|(_, _, p)| size(p)).min();
        with_room.retain(|(_, _, p)| Some(size(p)) == smallest);
        if self == Policy::Driver {
            let (_, gpu, profile) = with_room.first()?;
            return world.make(*gpu, profile.id, None);
        }
        let places = with_room.iter().flat_map(|(gpu, index, profile)| {
            let places = gpu.free_placements(profile).into_iter();
            places.map(move |at| (*gpu, *index, *profile, at))
        });
        let (_, gpu, profile, at) =
            places.min_by_key(|(gpu, index, _, at)| self.rank(gpu, *index, *at))?;
        world.make(gpu, profile.id, Some(at))
    }

    /// The least is taken.
    fn rank(self, gpu: &Gpu, index: u32, at: Placement) -> (i32, u32, Reverse<u32>, u32) {
        let free = free(gpu);
        let none = Reverse(0);
        match self {
            Policy::FirstFit => (0, 0, none, index * 100 + at.start),
            Policy::BestFit => (0, free.count_ones(), none, index * 100 + at.start),
            _ => {
                let cost = fragmentation(gpu, free & !bits(at)) - fragmentation(gpu, free);
                (cost, free.count_ones(), Reverse(at.start), index)
            }
        }
    }
}

fn gigabytes(profile: &str) -> u32 {
    let size = profile
        .split(['.', '+', '-'])
        .nth(1)
        .and_then(|s| s.strip_suffix("gb"));
    size.and_then(|n| n.parse().ok())
        .expect("a name of a profile")
}

fn bits(at: Placement) -> u32 {
    ((1 << at.size) - 1) << at.start
}

fn free(gpu: &Gpu) -> u32 {
    let all = (1 << gpu.model().memory_slices) - 1;
    gpu.gpu_instances
        .iter()
        .fold(all, |free, gi| free & !bits(gi.placement))
}

/// Over all profiles, the free memory slices that no still-free place of the profile covers.
fn fragmentation(gpu: &Gpu, free: u32) -> i32 {
    let lost = |p: &GiProfile| {
        let open = p.placements().map(bits).filter(|place| place & !free == 0);
        (free & !open.fold(0, |all, place| all | place)).count_ones() as i32
    };
    gpu.model().profiles.iter().map(lost).sum()
}
