//! A node with GPUs of any models, slices of every kind of user on them, and the truth about them in the simulated
//! driver.

use nvml_sim::engine::{self, Machine, Mode, Model, NewGpu, Unheld};
use proptest::prelude::*;
use proptest::sample::Index;
use runmig_dra::resource_slices::{DeviceName, Layout, Node, Published, Use, Uses, lay_out};
use runmig_lease::model::{Gpu, GpuInstance, GpuUuid, Placement, Profile, Snapshot};
use runmig_lease::placement::Slot;
use std::collections::{BTreeMap, BTreeSet};
use testkit::models;

/// The user of a slice in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An instance that only the driver knows.
    Foreign,
    /// A slice of a container.
    Local,
    /// A slice of a container that is not made yet.
    Pending,
    Idle,
    /// A claim without hardware.
    Promised,
    /// A claim with hardware.
    Prepared,
    /// A claim whose device names another place.
    Moved,
}

/// A step of a world: GPU, profile, place, the place of a moved claim's device, kind.
pub type Step = (Index, Index, Index, Index, Kind);

/// A GPU of a world: its model, and whether it is floor-swept.
#[derive(Clone, Copy)]
pub struct Card(pub &'static Model, pub bool);

impl std::fmt::Debug for Card {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} swept={}", self.0.key, self.1)
    }
}

#[derive(Clone, Debug)]
pub struct World {
    pub snapshot: Snapshot,
    pub ledger: Uses,
    pub sick: BTreeSet<String>,
    pub excluded: Vec<(GpuUuid, String)>,
    pub denied: Vec<String>,
    /// The driver with every slice that is held, made or not. Idle slices are not in it.
    pub truth: Machine,
    capabilities: BTreeMap<GpuUuid, (u32, u32)>,
    evicted: BTreeSet<String>,
}

impl World {
    pub fn new(models: &[Card]) -> World {
        let new = models.iter().map(|Card(model, floor_swept)| NewGpu {
            model,
            floor_swept: *floor_swept,
            mode: Mode::On,
        });
        let new: Vec<NewGpu> = new.collect();
        let gpus = { models.iter().zip(0..) }.map(|(Card(model, _), index)| Gpu {
            pci_bus_id: format!("00000000:{:02X}:00.0", 7 + 8 * index),
            ..models::gpu(model, index)
        });
        let gpus: Vec<Gpu> = gpus.collect();
        let capabilities = gpus.iter().map(|gpu| (gpu.uuid.clone(), (9, 0)));
        World {
            capabilities: capabilities.collect(),
            evicted: BTreeSet::new(),
            snapshot: Snapshot {
                driver_version: "570.86.05".to_owned(),
                gpus,
                unreadable: Vec::new(),
            },
            ledger: Uses::default(),
            sick: BTreeSet::new(),
            excluded: Vec::new(),
            denied: Vec::new(),
            truth: Machine::new("layout", &new),
        }
    }

    /// GPUs of one model.
    pub fn of(model: &str, count: usize) -> World {
        World::new(&vec![Card(Model::find(model).unwrap(), false); count])
    }

    /// Takes the steps that the driver allows.
    pub fn filled(models: &[Card], steps: &[Step]) -> World {
        let mut world = World::new(models);
        let mut with_idle = world.truth.clone();
        for (gpu, profile, place, device, kind) in steps {
            let at = gpu.index(world.snapshot.gpus.len());
            let gpu = world.snapshot.gpus[at].clone();
            let profile = &gpu.profiles[profile.index(gpu.profiles.len())];
            let placement = profile.placements[place.index(profile.placements.len())];
            let device = profile.placements[device.index(profile.placements.len())];
            if make(&mut with_idle, at, profile.id, placement) {
                world.put(at, profile, placement, device, *kind);
            }
        }
        world
    }

    fn put(
        &mut self,
        at: usize,
        profile: &Profile,
        placement: Placement,
        device: Placement,
        kind: Kind,
    ) {
        let gpu = &mut self.snapshot.gpus[at];
        let address = gpu.pci_bus_id.parse().unwrap();
        let is_made = !matches!(kind, Kind::Promised | Kind::Pending);
        if is_made {
            gpu.instances.push(GpuInstance {
                id: 0,
                profile_id: profile.id,
                placement,
            });
        }
        let slot = Slot::new(&gpu.uuid, profile.id, placement);
        let name = |at| DeviceName::new(address, profile.name.parse().unwrap(), at).unwrap();
        let claim = match kind {
            Kind::Idle => return self.ledger.idle.push(slot),
            Kind::Foreign | Kind::Local | Kind::Pending => None,
            Kind::Promised | Kind::Prepared => Some(name(placement)),
            Kind::Moved => Some(name(device)),
        };
        if kind != Kind::Foreign {
            // Two claims never have one device.
            let claim = claim.filter(|device| self.ledger.allocated.insert(device.clone()));
            self.ledger.uses.push(Use { slot, claim });
        }
        assert!(make(&mut self.truth, at, profile.id, placement));
    }

    pub fn node(&self) -> Node<'_> {
        Node {
            name: "node-a",
            snapshot: &self.snapshot,
            compute_capabilities: &self.capabilities,
            excluded: &self.excluded,
            denied_profiles: &self.denied,
            sick: &self.sick,
            evicted: &self.evicted,
            ledger: &self.ledger,
        }
    }

    pub fn lay_out(&self, before: &Published) -> Layout {
        lay_out(&self.node(), before)
    }

    /// The places that the ledger has promised.
    pub fn reserved(&self) -> Vec<Slot> {
        self.ledger
            .uses
            .iter()
            .map(|used| used.slot.clone())
            .collect()
    }

    /// Allocates a device to a claim that is promised at once.
    pub fn promise(&mut self, device: &DeviceName) {
        let (slot, claim) = (self.slot(device), Some(device.clone()));
        self.ledger.uses.push(Use { slot, claim });
        self.ledger.allocated.insert(device.clone());
    }

    pub fn slot(&self, device: &DeviceName) -> Slot {
        let (gpu, profile) = device.find(&self.snapshot).unwrap();
        Slot::new(&gpu.uuid, profile.id, device.placement())
    }

    /// Makes a device's slice in the driver, and says whether there was room.
    pub fn makes(&self, truth: &mut Machine, device: &DeviceName) -> bool {
        let (gpu, profile) = device.find(&self.snapshot).unwrap();
        make(truth, gpu.index as usize, profile.id, device.placement())
    }
}

fn make(machine: &mut Machine, gpu: usize, profile: u32, at: Placement) -> bool {
    let at = engine::Placement {
        start: at.start,
        size: at.size,
    };
    let made = machine.create_gpu_instance(gpu as u32, profile, Some(at), &Unheld);
    made.is_ok()
}

/// GPUs of any models, floor-swept or not, or several of one model.
pub fn models() -> impl Strategy<Value = Vec<Card>> {
    let model = || prop::sample::select(Model::with_mig().iter().collect::<Vec<_>>());
    let one = (model(), any::<bool>()).prop_map(|(model, swept)| Card(model, swept));
    prop_oneof![
        prop::collection::vec(one.clone(), 1..4),
        (one, 1usize..5).prop_map(|(one, count)| vec![one; count]),
    ]
}

pub fn steps(kinds: &'static [Kind]) -> impl Strategy<Value = Vec<Step>> {
    let index = any::<Index>;
    let kind = prop::sample::select(kinds);
    let step = (index(), index(), index(), index(), kind);
    prop::collection::vec(step, 0..14)
}

use Kind::{Foreign, Idle, Local, Moved, Pending, Prepared, Promised};
pub const IN_PLACE: &[Kind] = &[Foreign, Local, Pending, Idle, Promised, Prepared];
pub const ALL: &[Kind] = &[Foreign, Local, Idle, Promised, Prepared, Moved];
