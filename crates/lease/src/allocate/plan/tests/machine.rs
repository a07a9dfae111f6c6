//! Random machines with leases, instances of others, and places where earlier tries failed. Every machine is
//! one that a driver allows: nothing overlaps, and no GPU has more than its parts.

use super::models::gpu;
use super::reference::{Span, fits};
use super::world::World;
use crate::allocate::requester::Tried;
use crate::draft::slot_of;
use crate::inventory::Inventory;
use crate::model::{GpuInstance, InstanceId, LeaseId, Placement, Process, Profile, Timestamp};
use crate::store::{
    Container, Held, Holder, Instance, InstanceState, Lease, LeaseState, Origin, Portion, Resource,
    Slice,
};
use nvml_sim::engine::Model;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Some offer profiles of one name, with a little more or less memory.
pub(super) const MODELS: &[&str] = &[
    "A100-40GB",
    "A100-80GB",
    "H100-80GB",
    "A30-24GB",
    "RTX-PRO-6000-96GB",
];

/// The state of one place of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A container has the slice.
    Held,
    /// Two containers of a pod have it.
    Shared,
    /// On record, and not created yet.
    Promised,
    Idle,
    /// Idle, and destroyed before the next plan.
    IdleOver,
    /// Idle, and an earlier try could not destroy it.
    IdleTried,
    /// An administrator's instance, without a lease.
    Foreign,
    Adopted,
    /// An administrator's instance that was in use when this create tried it.
    Unfit,
    Unusable,
    /// The driver refused to create here.
    Refused,
    /// The same, and an instance of another process appeared since.
    RefusedAndTaken,
}

const KINDS: &[Kind] = &[
    Kind::Held,
    Kind::Shared,
    Kind::Promised,
    Kind::Idle,
    Kind::Idle,
    Kind::Idle,
    Kind::Idle,
    Kind::IdleOver,
    Kind::IdleTried,
    Kind::Foreign,
    Kind::Foreign,
    Kind::Foreign,
    Kind::Adopted,
    Kind::Unfit,
    Kind::Unusable,
    Kind::Refused,
    Kind::RefusedAndTaken,
];

/// A GPU, one of its profiles, a place of that, and what lies there.
pub(super) type Filling = (Index, Index, Index, Kind);

pub(super) fn filling() -> impl Strategy<Value = Filling> {
    (
        any::<Index>(),
        any::<Index>(),
        any::<Index>(),
        select(KINDS),
    )
}

/// Returns a machine with everything of the filling that fits, and no request.
pub(super) fn machine(models: &[&str], filling: &[Filling]) -> World {
    let mut world = World {
        inventory: Inventory::default(),
        alternatives: Vec::new(),
        min_compute: 0,
        excluded: Vec::new(),
        denied: Vec::new(),
        blockers: Vec::new(),
        limit: None,
        tried: Tried::default(),
        adopts: false,
    };
    let gpus = models.iter().zip(0..);
    world.inventory.snapshot.gpus = gpus.map(|(m, i)| gpu(Model::find(m).unwrap(), i)).collect();
    let mut there: Vec<Vec<Span>> = vec![Vec::new(); models.len()];
    for (n, (at, profile, place, kind)) in filling.iter().enumerate() {
        let at = at.index(models.len());
        let gpu = &mut world.inventory.snapshot.gpus[at];
        let profile = profile.get(&gpu.profiles).clone();
        let place = *place.get(&profile.placements);
        if fits(gpu, &there[at], &profile, place) {
            there[at].push((profile.id, place));
            add(&mut world, (at, &profile, place), *kind, n as u32);
        }
    }
    world
}

fn add(
    world: &mut World,
    (at, profile, placement): (usize, &Profile, Placement),
    kind: Kind,
    n: u32,
) {
    let gpu = &mut world.inventory.snapshot.gpus[at];
    let has_instance = !matches!(kind, Kind::Promised | Kind::Refused);
    if has_instance {
        gpu.instances.push(GpuInstance {
            id: n,
            profile_id: profile.id,
            placement,
        });
    }
    let slice = Slice {
        profile: profile.name.clone(),
        profile_id: profile.id,
        gpu_uuid: gpu.uuid.clone(),
        gpu_index: gpu.index,
        gpu_minor: gpu.minor,
        placement,
        memory_mib: profile.memory_mib,
        gpu_instance: has_instance.then_some(n),
        compute_instance: has_instance.then_some(0),
        mig_uuid: None,
        emptied: false,
    };
    let slot = slot_of(&slice);
    let instance = instance(slice, kind, n);
    let held = |id: String| Held {
        lease: lease(LeaseId::new(id), &instance, kind).into(),
        instance: instance.clone().into(),
    };
    let (inventory, tried) = (&mut world.inventory, &mut world.tried);
    match kind {
        Kind::Foreign => {}
        Kind::Unfit => tried.unfit.push(slot),
        Kind::Unusable => tried.unusable.push(slot),
        Kind::Refused | Kind::RefusedAndTaken => tried.refused.push(slot),
        Kind::Held | Kind::Promised | Kind::Adopted => inventory.leases.push(held(n.to_string())),
        Kind::Shared => {
            let both = [n.to_string(), format!("{n}-beside")];
            inventory.leases.extend(both.map(held));
        }
        Kind::Idle | Kind::IdleOver | Kind::IdleTried => {
            if kind == Kind::IdleOver {
                inventory.over.push(instance.id.clone());
            }
            if kind == Kind::IdleTried {
                tried.idle.push(instance.id.clone());
            }
            inventory.unleased.push(instance.into());
        }
    }
}

fn instance(slice: Slice, kind: Kind, n: u32) -> Instance {
    Instance {
        id: InstanceId::new(n.to_string()),
        created: Timestamp::default(),
        origin: match kind {
            Kind::Adopted => Origin::Administrator,
            _ => Origin::Ours,
        },
        state: match kind {
            Kind::Promised => InstanceState::Creating,
            Kind::Idle | Kind::IdleOver | Kind::IdleTried => InstanceState::Idle {
                since: "2026-01-01T00:00:00Z".into(),
            },
            _ => InstanceState::Ready,
        },
        resource: Resource::Mig(slice),
        layout: None,
        operation: None,
        planned: false,
    }
}

fn lease(id: LeaseId, instance: &Instance, kind: Kind) -> Lease {
    Lease {
        id,
        instance: instance.id.clone(),
        portion: Portion::All,
        state: match kind {
            Kind::Promised => LeaseState::Pending,
            _ => LeaseState::Ready,
        },
        created: Timestamp::default(),
        request: String::new(),
        holder: Holder::Container(Container::default()),
        operation: None,
        creator: Process {
            pid: 0,
            start_time: 0,
        },
        runtime_process: None,
        init: None,
        namespaces: None,
        cgroups: Vec::new(),
        shared_in: (kind == Kind::Shared).then(|| "pod".to_owned()),
    }
}
