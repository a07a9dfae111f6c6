//! Arrivals and departures on a simulated machine: Poisson and exponential, from a seed.

use super::models::gpu;
use super::policy::Policy;
use nvml_sim::engine::{Machine, Mode, Model, NewGpu, Placement, Unheld};
use runmig::model::{self, Gpu, GpuInstance, Snapshot};
use runmig::placement::{PATIENCE, Packer, Room};
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workloads {
    pub model: String,
    pub gpus: u32,
    pub loads: Vec<f64>,
    pub mixes: Vec<Mix>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    pub name: String,
    pub shares: BTreeMap<String, f64>,
}

impl Workloads {
    pub fn read() -> Workloads {
        toml::from_str(include_str!("workloads.toml")).expect("workloads.toml")
    }

    pub fn model(&self) -> &'static Model {
        Model::find(&self.model).expect("a model of the simulated driver")
    }
}

/// The machine as the simulated driver has it, and as the product sees it.
pub struct World {
    pub machine: Machine,
    pub snapshot: Snapshot,
}

impl World {
    pub fn new(model: &'static Model, gpus: u32) -> World {
        let new = || NewGpu {
            model,
            floor_swept: false,
            mode: Mode::On,
        };
        let all: Vec<NewGpu> = (0..gpus).map(|_| new()).collect();
        World {
            machine: Machine::new("packing", &all),
            snapshot: Snapshot {
                gpus: (0..gpus).map(|index| gpu(model, index)).collect(),
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
                compute_instances: Vec::new(),
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

/// What a run counts, after it has warmed up.
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
    pub workloads: &'a Workloads,
    pub mix: usize,
    pub load: f64,
    pub seed: u64,
    pub arrivals: usize,
}

impl Run<'_> {
    /// The same requests for every policy.
    pub fn count(&self, policy: Policy, packer: &mut Packer) -> Count {
        let model = self.workloads.model();
        let mix = &self.workloads.mixes[self.mix];
        let named = |name: &String| {
            let found = model.profiles.iter().find(|p| p.name == *name);
            found.unwrap_or_else(|| panic!("{} has no {name}", model.key))
        };
        let total: f64 = mix.shares.values().sum();
        let shares: Vec<_> = mix
            .shares
            .iter()
            .map(|(n, s)| (named(n), s / total))
            .collect();
        let mean: f64 = shares
            .iter()
            .map(|(p, s)| s * f64::from(p.memory_slices))
            .sum();
        let slices = f64::from(self.workloads.gpus * model.memory_slices);
        let rate = self.load * slices / mean;

        let mut random = Random(self.seed);
        let mut world = World::new(model, self.workloads.gpus);
        let mut there: BinaryHeap<Leaving> = BinaryHeap::new();
        let (mut now, mut count) = (0.0, Count::default());
        for arrival in 0..self.arrivals {
            now += random.exponential() / rate;
            let mut pick = random.uniform();
            let last = shares.len() - 1;
            let which = shares.iter().position(|(_, share)| {
                pick -= share;
                pick < 0.0
            });
            let profile = shares[which.unwrap_or(last)].0;
            let leaves = now + random.exponential();
            while there.peek().is_some_and(|l| f64::from_bits(l.at.0) <= now) {
                let gone = there.pop().expect("looked");
                if let Some(instance) = gone.instance {
                    world.destroy(instance);
                }
            }
            let of_all = |there: &BinaryHeap<Leaving>, packer: &mut Packer| {
                let names = there
                    .iter()
                    .map(|l| l.profile)
                    .chain([profile.name.as_str()]);
                packer.holds(names).expect("within patience")
            };
            let made = match policy {
                Policy::Repack => of_all(&there, packer).then_some(None),
                _ => policy.place(&mut world, profile).map(Some),
            };
            // The first tenth fills the machine.
            let counts = arrival >= self.arrivals / 10;
            let memory = u64::from(profile.memory_slices);
            if counts {
                count.asked += 1;
                count.memory_asked += memory;
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
                        profile: &profile.name,
                    });
                    if counts {
                        count.accepted += 1;
                        count.memory_accepted += memory;
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
    profile: &'static str,
}

/// Of an empty machine.
pub fn packer(workloads: &Workloads) -> Packer {
    let gpus: Vec<Gpu> = (0..workloads.gpus)
        .map(|i| gpu(workloads.model(), i))
        .collect();
    let rooms: Vec<Room<'_>> = gpus.iter().map(Room::empty).collect();
    Packer::new(&rooms, PATIENCE)
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
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }
}
