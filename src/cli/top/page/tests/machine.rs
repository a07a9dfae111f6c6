//! A machine for the pages of the tests.

use crate::cli::top::page::Facts;
use runmig_lease::model::{
    Gpu, GpuInstance, GpuUuid, InstanceId, LeaseId, MigMode, Placement, Process, Profile, Timestamp,
};
use runmig_lease::placement::GpuUse;
use runmig_lease::store::{
    Attempt, Container, Enforcement, Held, Holder, Instance, InstanceState, Key, Lease, LeaseState,
    Origin, Portion, Resource, Share, Slice, WholeGpu,
};
use runmig_lease::{GpuState, LeaseUse};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The time of every page, a minute after every create.
pub fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_060)
}

pub fn created() -> Timestamp {
    Timestamp::seconds(now() - Duration::from_secs(60))
}

pub fn container(namespace: &str, pod: &str, name: &str) -> Holder {
    Holder::Container(Container {
        key: Key::new("/run/runc".into(), name.to_owned()),
        namespace: Some(namespace.to_owned()),
        pod: Some(pod.to_owned()),
        container_name: Some(name.to_owned()),
        ..Container::default()
    })
}

pub fn held(n: usize, resource: Resource, portion: Portion, holder: Holder) -> Held {
    let id = format!("{n:032x}");
    Held {
        lease: Lease {
            id: LeaseId::new(id.clone()),
            instance: InstanceId::new(id.clone()),
            portion,
            state: LeaseState::Ready,
            created: created(),
            request: "a request".to_owned(),
            holder,
            operation: None,
            creator: Process {
                pid: 1,
                start_time: 1,
            },
            runtime_process: None,
            init: None,
            namespaces: None,
            cgroups: Vec::new(),
            shared_in: None,
        }
        .into(),
        instance: Instance {
            id: InstanceId::new(id),
            created: created(),
            origin: Origin::Ours,
            state: InstanceState::Ready,
            resource,
            layout: None,
            operation: None,
            planned: false,
        }
        .into(),
    }
}

pub fn slice(start: u32) -> Resource {
    Resource::Mig(Slice {
        profile: "1g.10gb".to_owned(),
        profile_id: 19,
        gpu_uuid: "GPU-0".into(),
        gpu_index: 0,
        gpu_minor: 0,
        placement: Placement { start, size: 1 },
        memory_mib: 9728,
        gpu_instance: Some(start),
        compute_instance: Some(0),
        mig_uuid: None,
        emptied: false,
    })
}

pub fn whole(index: u32) -> Resource {
    Resource::Gpu(WholeGpu {
        gpu_uuid: GpuUuid::new(format!("GPU-{index}")),
        gpu_index: index,
        gpu_minor: index,
        model: "NVIDIA L4".to_owned(),
        memory_mib: 22522,
    })
}

pub fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        minor: index,
        uuid: GpuUuid::new(format!("GPU-{index}")),
        name: "NVIDIA A100".to_owned(),
        pci_bus_id: String::new(),
        mig: MigMode::Enabled,
        mig_pending: None,
        closed: None,
        profiles: vec![Profile {
            name: "1g.10gb".to_owned(),
            id: 19,
            compute_slices: 1,
            memory_mib: 9728,
            multiprocessors: 14,
            copy_engines: 1,
            decoders: 0,
            encoders: 0,
            jpegs: 0,
            ofas: 0,
            p2p: false,
            max_instances: 7,
            placements: (0..7).map(|start| Placement { start, size: 1 }).collect(),
        }],
        instances: Vec::new(),
    }
}

pub fn usage() -> GpuState {
    GpuState {
        usage: GpuUse::Mig { pending: false },
        memory_mib: None,
        foreign_mib: None,
        compute_mode: None,
        error: None,
    }
}

/// A GPU with two slices, and a GPU with a share and a holder of its own.
pub fn facts() -> Facts {
    let mut facts = Facts::default();
    let share = Share {
        memory_mib: 4096,
        booked_mib: 4096,
        enforcement: Enforcement::None,
    };
    let mut stuck = held(4, slice(3), Portion::All, container("other", "web", "d"));
    Arc::make_mut(&mut stuck.instance).state = InstanceState::Quarantined(Attempt {
        count: 1,
        error: "in use".to_owned(),
        held_by: Vec::new(),
        next: created(),
    });
    let lease = Arc::make_mut(&mut stuck.lease);
    lease.state = LeaseState::Releasing;
    lease.created = Timestamp::seconds(now() - Duration::from_secs(600));
    facts.inventory.leases = vec![
        held(1, slice(0), Portion::All, container("team", "train", "a")),
        held(
            2,
            whole(1),
            Portion::Share(share),
            container("team", "infer", "b"),
        ),
        held(3, whole(2), Portion::All, container("other", "whole", "c")),
        stuck,
    ];
    let used = |mib: Option<u64>, processes| LeaseUse {
        used_bytes: mib.map(|mib| mib << 20),
        processes,
    };
    facts.uses = vec![
        used(Some(512), Some(1)),
        used(Some(3072), Some(2)),
        used(None, None),
        used(Some(12), Some(0)),
    ];
    let mut mig = gpu(0);
    mig.instances = [0, 3]
        .map(|start| GpuInstance {
            id: start,
            profile_id: 19,
            placement: Placement { start, size: 1 },
        })
        .to_vec();
    facts.inventory.snapshot.gpus = vec![mig];
    facts.gpus = vec![usage()];
    facts
}
