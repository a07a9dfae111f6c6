//! A node of the simulation: the places of claims as `runmig-dra` knows them, and the simulated driver, which makes
//! the slice of each decision.

use super::order::Order;
use crate::packing::models;
use nvml_sim::engine::{self, Machine, Mode, Model, NewGpu, Unheld};
use runmig_dra::resource_slices::{
    DeviceName, Layout, Node as Facts, Published, Use, Uses, lay_out,
};
use runmig_lease::model::{Gpu, GpuUuid, Placement, Profile, ProfileName, Snapshot};
use runmig_lease::placement::{Constraints, Slot, choose};
use runmig_lease::request::Slice;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub struct Node {
    snapshot: Snapshot,
    capabilities: BTreeMap<GpuUuid, (u32, u32)>,
    /// The devices that are sick or evicted.
    none: BTreeSet<String>,
    ledger: Uses,
    machine: Machine,
    /// The slices, of claims and local ones: GPU and id.
    made: HashMap<DeviceName, (u32, u32)>,
    /// The lists of one moment, by profile.
    lists: HashMap<String, Vec<DeviceName>>,
}

impl Node {
    pub fn new(models: &[&'static Model]) -> Node {
        let new = |model: &&'static Model| NewGpu {
            model,
            floor_swept: false,
            mode: Mode::On,
        };
        let all: Vec<NewGpu> = models.iter().map(new).collect();
        let gpus = { models.iter().zip(0..) }.map(|(model, index)| Gpu {
            pci_bus_id: format!("00000000:{:02X}:00.0", 7 + 8 * index),
            ..models::gpu(model, index)
        });
        let gpus: Vec<Gpu> = gpus.collect();
        let capabilities = gpus.iter().map(|gpu| (gpu.uuid.clone(), (8, 0)));
        Node {
            capabilities: capabilities.collect(),
            none: BTreeSet::new(),
            snapshot: Snapshot {
                gpus,
                ..Snapshot::default()
            },
            ledger: Uses::default(),
            machine: Machine::new("scheduler", &all),
            made: HashMap::new(),
            lists: HashMap::new(),
        }
    }

    pub fn pods(&self) -> usize {
        self.made.len()
    }

    /// Returns the number of devices of a profile that claims have.
    pub fn count(&self, profile: &str) -> usize {
        let devices = self.ledger.allocated.iter();
        devices.filter(|d| *profile == *d.profile()).count()
    }

    pub fn has_room(&self, profile: &str) -> bool {
        let mut gpus = self.snapshot.gpus.iter().zip(0..);
        gpus.any(|(gpu, index)| {
            let wanted = gpu.profiles.iter().find(|p| *p.name == *profile);
            let room = |p: &Profile| self.machine.gpus[index].remaining_capacity(p.id);
            wanted.is_some_and(|p| room(p).expect("its own") > 0)
        })
    }

    /// Forgets the lists, so that the next request sees new ones.
    pub fn publish(&mut self) {
        self.lists.clear();
    }

    /// Returns the first device of a profile that fits.
    pub fn first(&mut self, profile: &str, order: Order) -> Option<DeviceName> {
        if order == Order::Choice {
            return self.choice(profile);
        }
        if !self.lists.contains_key(profile) {
            let list = match order {
                Order::Ours => self.ours(profile),
                _ => self.fixed(profile, order),
            };
            self.lists.insert(profile.to_owned(), list);
        }
        let mut list = self.lists[profile].iter();
        list.find(|device| self.fits(device)).cloned()
    }

    /// Returns `placement`'s choice.
    pub fn choice(&self, profile: &str) -> Option<DeviceName> {
        let slice = Slice::Profile(profile.parse().expect("a profile"));
        let reserved: Vec<Slot> = self
            .ledger
            .uses
            .iter()
            .map(|used| used.slot.clone())
            .collect();
        let decision = choose(&self.snapshot, &reserved, &Constraints::one(&slice)).ok()?;
        Some(name(decision.gpu, profile, decision.placement))
    }

    /// Gives a device to a claim, and its slice to the claim's pod.
    pub fn allocate(&mut self, device: &DeviceName) {
        let made = self.try_allocate(device);
        assert!(made, "the driver has room where the counters have some");
    }

    /// Does so, unless something is in the way.
    pub fn try_allocate(&mut self, device: &DeviceName) -> bool {
        let made = self.make(device, Some(device.clone()));
        if made {
            self.ledger.allocated.insert(device.clone());
        }
        made
    }

    /// Makes a local slice.
    pub fn take(&mut self, device: &DeviceName) {
        assert!(self.make(device, None));
    }

    /// Does so, unless something is in the way.
    pub fn try_take(&mut self, device: &DeviceName) -> bool {
        self.make(device, None)
    }

    /// Removes all local slices.
    pub fn give_back(&mut self) {
        let locals: Vec<DeviceName> = { self.made.keys() }
            .filter(|device| !self.ledger.allocated.contains(device))
            .cloned()
            .collect();
        locals.iter().for_each(|device| self.free(device));
    }

    /// Returns the part of the memory slices that are in use.
    pub fn memory_used(&self) -> f64 {
        let all = self
            .machine
            .gpus
            .iter()
            .map(|gpu| gpu.model().memory_slices);
        let used = self.ledger.uses.iter().map(|used| used.slot.placement.size);
        f64::from(used.sum::<u32>()) / f64::from(all.sum::<u32>())
    }

    /// Returns all that `runmig-dra` publishes.
    pub fn lay_out(&self, name: &str, before: &Published) -> Layout {
        lay_out(&self.facts(name, &[]), before)
    }

    fn facts<'a>(&'a self, name: &'a str, denied: &'a [String]) -> Facts<'a> {
        Facts {
            name,
            snapshot: &self.snapshot,
            compute_capabilities: &self.capabilities,
            excluded: &[],
            denied_profiles: denied,
            sick: &self.none,
            evicted: &self.none,
            ledger: &self.ledger,
        }
    }

    fn make(&mut self, device: &DeviceName, claim: Option<DeviceName>) -> bool {
        let (gpu, profile) = device.find(&self.snapshot).expect("published");
        let made = self.machine.create_gpu_instance(
            gpu.index,
            profile.id,
            Some(driver(device.placement())),
            &Unheld,
        );
        let Ok(made) = made else { return false };
        self.made.insert(device.clone(), (gpu.index, made.id));
        self.ledger.uses.push(Use {
            slot: Slot {
                gpu: gpu.uuid.clone(),
                profile_id: profile.id,
                placement: device.placement(),
            },
            claim,
        });
        true
    }

    pub fn free(&mut self, device: &DeviceName) {
        let (gpu, id) = self.made.remove(device).expect("it was made");
        let gone = self.machine.destroy_gpu_instance(gpu, id, &Unheld);
        gone.expect("it was made");
        let (of, _) = device.find(&self.snapshot).expect("published");
        let is_it = |slot: &Slot| slot.gpu == of.uuid && slot.placement == device.placement();
        self.ledger.uses.retain(|used| !is_it(&used.slot));
        self.ledger.allocated.remove(device);
    }

    /// The counters say the same as the driver: a property test of the layout.
    fn fits(&self, device: &DeviceName) -> bool {
        let (gpu, profile) = device.find(&self.snapshot).expect("published");
        let gpu = &self.machine.gpus[gpu.index as usize];
        let same = gpu.model().profiles.iter().find(|p| p.id == profile.id);
        let same = same.expect("its own");
        let has_room = gpu.remaining_capacity(same.id).expect("its own") > 0;
        has_room
            && gpu
                .free_placements(same)
                .contains(&driver(device.placement()))
    }

    /// The list that `runmig-dra` publishes for a profile. It lays out the other profiles too; here nobody looks at
    /// them, so they are left out.
    fn ours(&self, profile: &str) -> Vec<DeviceName> {
        let all = self.snapshot.gpus.iter().flat_map(|gpu| &gpu.profiles);
        let others: HashSet<&String> = { all.map(|p| &p.name) }
            .filter(|p| **p != *profile)
            .collect();
        let others: Vec<String> = others.into_iter().cloned().collect();
        let layout = lay_out(&self.facts("node", &others), &Published::default());
        let devices = { layout.slices.into_iter() }.flat_map(|slice| slice.spec.devices);
        let names = devices
            .flatten()
            .filter_map(|device| device.name.parse().ok());
        names
            .filter(|name: &DeviceName| *profile == *name.profile())
            .collect()
    }

    fn fixed(&self, profile: &str, order: Order) -> Vec<DeviceName> {
        let of = |gpu: &Gpu| {
            let offered = gpu.profiles.iter().find(|p| *p.name == *profile);
            let mut places = offered.map(|p| p.placements.clone()).unwrap_or_default();
            places.sort_by_key(|at| rank(*at, order));
            places
                .into_iter()
                .map(|at| name(gpu, profile, at))
                .collect::<Vec<_>>()
        };
        self.snapshot.gpus.iter().flat_map(of).collect()
    }
}

/// The least comes first. The fixed order begins with the half of a GPU that a profile of four compute slices cannot
/// have, and there with the last pair, whose second slice no other profile can use.
fn rank(at: Placement, order: Order) -> (Reverse<bool>, Reverse<bool>, u32) {
    let is_fixed = order == Order::Fixed;
    let is_upper = is_fixed && at.start >= 4;
    let is_last = is_fixed && at.start >= 6;
    (Reverse(is_upper), Reverse(is_last), at.start)
}

fn name(gpu: &Gpu, profile: &str, at: Placement) -> DeviceName {
    let address = gpu.pci_bus_id.parse().expect("an address");
    let profile: ProfileName = profile.parse().expect("a profile");
    DeviceName::new(address, profile, at).expect("short enough")
}

fn driver(at: Placement) -> engine::Placement {
    engine::Placement {
        start: at.start,
        size: at.size,
    }
}
