//! Arrivals and departures on a simulated machine: Poisson and exponential, from a seed.

use super::models::gpu;
use super::policy::Policy;
use super::workloads::Fleet;
use nvml_sim::engine::{GiProfile, Machine, Mode, Model, NewGpu, Placement, Unheld};
use runmig_lease::model::{self, Gpu, GpuInstance, Profile, Snapshot};
use runmig_lease::placement::{Occupancy, Packer};
use runmig_lease::request::{self, Slice};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Requests that ask for the same.
pub struct Kind {
    pub slice: Slice,
    /// The profile that the request means on each GPU.
    pub on: Vec<Option<&'static GiProfile>>,
    /// The least memory, in MiB, that its slice takes on any GPU.
    pub memory: u64,
    /// The part of all requests.
    pub share: f64,
}

impl Kind {
    pub fn new(name: &str, share: f64, models: &[&'static Model]) -> Kind {
        let slice = request::alternatives(name)
            .expect("a request")
            .remove(0)
            .slice;
        let on: Vec<Option<&'static GiProfile>> =
            models.iter().map(|m| smallest(m, &slice)).collect();
        let takes = |(profile, model): (&Option<&GiProfile>, &&Model)| {
            let slices = u64::from(profile.as_ref()?.memory_slices);
            Some(slices * model.memory_mb / u64::from(model.memory_slices))
        };
        let memory = on.iter().zip(models).filter_map(takes).min();
        Kind {
            memory: memory.unwrap_or_else(|| panic!("no GPU has {name}")),
            slice,
            on,
            share,
        }
    }
}

/// The profile of that name, or the smallest that has the memory.
fn smallest(model: &'static Model, slice: &Slice) -> Option<&'static GiProfile> {
    let mut profiles = model.profiles.iter();
    match slice {
        Slice::Profile(name) => profiles.find(|p| *p.name == *name),
        Slice::Memory(bytes) => profiles
            .filter(|p| p.memory_mb << 20 >= *bytes)
            .min_by_key(|p| (p.memory_mb, p.compute_slices, p.name.contains(['+', '-']))),
    }
}

/// The machine as the simulated driver has it, and as the product sees it.
pub struct World {
    pub machine: Machine,
    pub snapshot: Snapshot,
}

impl World {
    pub fn new(models: &[&'static Model]) -> World {
        let new = |model: &&'static Model| NewGpu {
            model,
            floor_swept: false,
            mode: Mode::On,
        };
        let all: Vec<NewGpu> = models.iter().map(new).collect();
        World {
            machine: Machine::new("packing", &all),
            snapshot: Snapshot {
                gpus: models.iter().zip(0..).map(|(m, i)| gpu(m, i)).collect(),
                ..Snapshot::default()
            },
        }
    }

    /// Made by the simulated driver, which checks every decision; without a placement it chooses.
    pub fn make(&mut self, gpu: u32, profile: u32, at: Option<Placement>) -> Option<Instance> {
        let made = self
            .machine
            .create_gpu_instance(gpu, profile, at, &Unheld)
            .ok()?;
        let placement = model::Placement {
            start: made.placement.start,
            size: made.placement.size,
        };
        self.snapshot.gpus[gpu as usize]
            .instances
            .push(GpuInstance {
                id: made.id,
                profile_id: profile,
                placement,
            });
        Some(Instance { gpu, id: made.id })
    }

    pub fn destroy(&mut self, instance: Instance) {
        let gone = self
            .machine
            .destroy_gpu_instance(instance.gpu, instance.id, &Unheld);
        gone.expect("it was made");
        let gpu = &mut self.snapshot.gpus[instance.gpu as usize];
        gpu.instances.retain(|i| i.id != instance.id);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    pub gpu: u32,
    pub id: u32,
}

/// The counts of a run, after it has warmed up.
#[derive(Clone, Copy, Default)]
pub struct Count {
    pub asked: u64,
    pub accepted: u64,
    pub memory_asked: u64,
    pub memory_accepted: u64,
    pub would_fit: u64,
    pub gpus_used: u64,
}

pub struct Run<'a> {
    pub fleet: &'a Fleet,
    pub kinds: &'a [Kind],
    pub load: f64,
    pub seed: u64,
    pub arrivals: usize,
}

impl Run<'_> {
    /// The same requests for every policy.
    pub fn count(&self, policy: Policy, packer: &mut Packer) -> Count {
        let models = self.fleet.models();
        let mean: f64 = self.kinds.iter().map(|k| k.memory as f64 * k.share).sum();
        let there_is: u64 = models.iter().map(|m| m.memory_mb).sum();
        let rate = self.load * there_is as f64 / mean;

        let mut random = Random(self.seed);
        let mut world = World::new(&models);
        let mut there: BinaryHeap<Leaving> = BinaryHeap::new();
        let (mut now, mut count) = (0.0, Count::default());
        for arrival in 0..self.arrivals {
            now += random.exponential() / rate;
            let mut pick = random.uniform();
            let last = self.kinds.len() - 1;
            let which = self.kinds.iter().position(|kind| {
                pick -= kind.share;
                pick < 0.0
            });
            let which = which.unwrap_or(last);
            let kind = &self.kinds[which];
            let leaves = now + random.exponential();
            while there.peek().is_some_and(|l| f64::from_bits(l.at.0) <= now) {
                let gone = there.pop().expect("looked");
                if let Some(instance) = gone.instance {
                    world.destroy(instance);
                }
            }
            let of_all = |there: &BinaryHeap<Leaving>, packer: &mut Packer| {
                let kinds = there.iter().map(|l| l.kind).chain([which]);
                let names = kinds.map(|k| NAMES[k]);
                packer.holds(names).expect("within patience")
            };
            let made = match policy {
                Policy::Repack => of_all(&there, packer).then_some(None),
                _ => policy.place(&mut world, kind).map(Some),
            };
            // The first tenth fills the machine.
            let counts = arrival >= self.arrivals / 10;
            if counts {
                count.asked += 1;
                count.memory_asked += kind.memory;
                let used = world
                    .snapshot
                    .gpus
                    .iter()
                    .filter(|g| !g.instances.is_empty());
                count.gpus_used += used.count() as u64;
            }
            match made {
                Some(instance) => {
                    there.push(Leaving {
                        at: Reverse(leaves.to_bits()),
                        instance,
                        kind: which,
                    });
                    if counts {
                        count.accepted += 1;
                        count.memory_accepted += kind.memory;
                    }
                }
                None if counts && policy != Policy::Repack => {
                    count.would_fit += u64::from(of_all(&there, packer));
                }
                None => {}
            }
        }
        count
    }
}

/// Soonest first; times are positive, so their bits are in their order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Leaving {
    at: Reverse<u64>,
    instance: Option<Instance>,
    kind: usize,
}

/// The names of a mix's kinds for the packer.
pub const NAMES: [&str; 12] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];

/// Returns the packer of an empty machine. Its profiles are the kinds of requests.
pub fn packer(fleet: &Fleet, kinds: &[Kind]) -> Packer {
    let models = fleet.models();
    let gpus: Vec<Gpu> = (models.iter().zip(0..))
        .map(|(model, index)| {
            let mut gpu = gpu(model, index);
            gpu.profiles.iter_mut().for_each(shape);
            let asked = kinds.iter().zip(NAMES).filter_map(|(kind, name)| {
                let profile = gpu.profile(kind.on[index as usize]?.id)?;
                let name = name.to_owned();
                Some(Profile {
                    name,
                    ..profile.clone()
                })
            });
            let asked: Vec<Profile> = asked.collect();
            // The others say how much of everything the GPU has.
            for other in &mut gpu.profiles {
                other.placements.clear();
            }
            gpu.profiles.splice(..0, asked);
            gpu
        })
        .collect();
    let rooms: Vec<Occupancy<'_>> = gpus.iter().map(Occupancy::empty).collect();
    Packer::new(&rooms, u32::MAX)
}

/// Reduces a profile to the properties that models with the same places share, which makes the
/// search short. No model here has too few engines of these kinds for its memory and compute
/// slices.
fn shape(profile: &mut Profile) {
    profile.memory_mib = 0;
    profile.multiprocessors = 0;
    profile.copy_engines = 0;
    profile.decoders = 0;
    profile.encoders = 0;
    profile.jpegs = 0;
}

/// SplitMix64: short, and the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1, neither of them.
    pub fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }
}
