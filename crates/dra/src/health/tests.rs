use super::*;
use runmig_lease::model::{ComputeInstance, Cordon, Gpu, GpuInstance, Sign, SignKind};
use runmig_lease::store::{Claim, Holder, Instance, Lease, Origin, Portion, Resource};
use std::iter::repeat_with;
use std::sync::Arc;

const POOL: &str = "runmig.node";
const DEVICE: &str = "gpu-0000-07-00-0-mig-1g-10gb-2-1";
const AT: Placement = Placement { start: 2, size: 1 };

fn gpu() -> Gpu {
    Gpu {
        uuid: "GPU-0".into(),
        mig: MigMode::Enabled,
        instances: vec![GpuInstance {
            id: 7,
            profile_id: 19,
            placement: AT,
        }],
        ..Gpu::default()
    }
}

fn held() -> Held {
    let instance = Instance {
        id: InstanceId::new("i"),
        created: Default::default(),
        origin: Origin::Ours,
        state: InstanceState::Ready,
        resource: Resource::Mig(Slice {
            profile: "1g.10gb".to_owned(),
            profile_id: 19,
            gpu_uuid: "GPU-0".into(),
            gpu_index: 0,
            gpu_minor: 0,
            placement: AT,
            memory_mib: 9_728,
            gpu_instance: Some(7),
            compute_instance: Some(0),
            mig_uuid: Some("MIG-7".to_owned()),
            emptied: false,
        }),
        layout: None,
        operation: None,
        planned: false,
    };
    let claim = Claim {
        device: DEVICE.to_owned(),
        ..testkit::claims::claim("train")
    };
    let lease = Lease {
        id: "l".into(),
        instance: instance.id.clone(),
        portion: Portion::All,
        state: LeaseState::Ready,
        created: Default::default(),
        request: "1g.10gb".to_owned(),
        holder: Holder::Claim(claim),
        operation: None,
        creator: runmig_lease::process::current(),
        runtime_process: None,
        init: None,
        namespaces: None,
        cgroups: Vec::new(),
        shared_in: None,
    };
    let (lease, instance) = (Arc::new(lease), Arc::new(instance));
    Held { lease, instance }
}

fn inventory() -> Inventory {
    let mut inventory = Inventory::default();
    inventory.snapshot.gpus.push(gpu());
    inventory.leases.push(held());
    inventory
}

/// The health by a look whose predecessor saw the instance ready, or not.
fn seen(inventory: &Inventory, is_known: bool) -> Health {
    let earlier = match is_known {
        true => Earlier::of(inventory),
        false => Earlier::default(),
    };
    seen_after(inventory, &earlier)
}

fn seen_after(inventory: &Inventory, earlier: &Earlier) -> Health {
    let [device] = &healths(inventory, POOL, earlier)[..] else {
        panic!("not one device");
    };
    let claim = &device.claim;
    assert_eq!((claim.pool.as_str(), claim.device.as_str()), (POOL, DEVICE));
    device.health.clone()
}

fn reason(health: Health) -> String {
    let Health::Unhealthy(illness) = health else {
        panic!("{health:?}");
    };
    illness.why
}

type Change = fn(&mut Inventory);

fn changed(change: Change) -> Inventory {
    let mut inventory = inventory();
    change(&mut inventory);
    inventory
}

/// Failure: a GPU answers the driver well, and fails every CUDA program
#[test]
fn names_illness_of_gpu() {
    let pending: Change = |i| i.snapshot.gpus[0].mig_pending = Some(MigMode::Disabled);
    assert_eq!(seen(&changed(pending), false), Health::Healthy);
    let gone: Change = |i| i.snapshot.gpus.clear();
    let lost: Change = |i| {
        i.snapshot.gpus.clear();
        i.snapshot.unreadable = vec![(0, "GPU is lost".to_owned())];
    };
    let off: Change = |i| i.snapshot.gpus[0].mig = MigMode::Disabled;
    let sick: Change = |i| {
        let sign = Sign {
            kind: SignKind::RecoveryAction,
            amount: 1,
        };
        i.snapshot.gpus[0].closed = Some(Closed {
            signs: vec![sign],
            ..Closed::default()
        });
    };
    for (change, kind, why) in testkit::rows! {
        gone, "GPUGone" => "GPU GPU-0 is gone";
        lost, "GPUDoesNotAnswer" => "GPU GPU-0 does not answer: GPU is lost";
        off, "MIGModeOff" => "the MIG mode of GPU 0 is off";
        sick, "GPUSick" => "GPU 0 is sick: the driver asks for its reset";
    } {
        let ill = Health::Unhealthy(Illness {
            kind,
            why: why.to_owned(),
        });
        assert_eq!(seen(&changed(change), false), ill);
    }
}

/// A slice that became ready after the driver was asked is not in its answer.
#[test]
fn names_missing_instance_at_second_look() {
    let mut inventory = inventory();
    inventory.snapshot.gpus[0].instances[0].id = 8;
    assert_eq!(seen(&inventory, false), Health::Unknown);
    let words = "GPU instance 7 (1g.10gb at 2:1) on GPU 0 is gone, and runmig did not destroy it";
    assert_eq!(reason(seen(&inventory, true)), words);
    inventory.snapshot.gpus[0].instances.clear();
    assert_eq!(reason(seen(&inventory, true)), words);
    // A promise and a release have no instance to miss.
    for state in [LeaseState::Pending, LeaseState::Releasing] {
        Arc::make_mut(&mut inventory.leases[0].lease).state = state;
        assert_eq!(seen(&inventory, true), Health::Healthy);
    }
}

/// An administrator destroyed it alone, so the GPU instance is in the driver's answer.
#[test]
fn names_missing_compute_instance() {
    let inventory = inventory();
    let inside = |ids: &[u32]| {
        let compute_instance = |id: &u32| ComputeInstance {
            id: *id,
            profile_id: 0,
            slices: 1,
        };
        let listed = ListedInstance {
            id: 7,
            profile_id: 19,
            placement: AT,
            compute_instances: ids.iter().map(compute_instance).collect(),
        };
        let mut earlier = Earlier::of(&inventory);
        earlier.look_inside(|_, _| vec![listed.clone()]);
        seen_after(&inventory, &earlier)
    };
    assert_eq!(inside(&[0]), Health::Healthy);
    let words = "compute instance 0 of GPU instance 7 (1g.10gb at 2:1) on GPU 0 is gone, and runmig did not destroy it";
    for ids in [&[][..], &[1]] {
        assert_eq!(reason(inside(ids)), words);
    }
    // A GPU that does not answer tells nothing of it.
    let mut earlier = Earlier::of(&inventory);
    earlier.look_inside(|_, _| Vec::new());
    assert_eq!(seen_after(&inventory, &earlier), Health::Healthy);
}

#[test]
fn leaves_out_other_pools() {
    assert!(healths(&inventory(), "runmig.other", &Earlier::default()).is_empty());
}

#[test]
fn only_lasting_illness_evicts() {
    let (mut sick, now) = (Sick::default(), Instant::now());
    let look = |health: Health| {
        let claim = held().lease.claim().unwrap().clone();
        vec![DeviceHealth { claim, health }]
    };
    let illness = Illness {
        kind: "GPUGone",
        why: "lost".to_owned(),
    };
    let ill = look(Health::Unhealthy(illness));
    let told = sick.update(&ill, now);
    let words =
        format!("device {DEVICE} of claim team-a/train-gpu (pod team-a/train) is unhealthy: lost");
    assert_eq!(told, [words]);
    assert!(sick.lasting(now).is_empty());
    let later = now + LASTING;
    let told: Vec<String> = repeat_with(|| sick.update(&ill, later))
        .take(2)
        .flatten()
        .collect();
    assert_eq!(told, [""; 0]);
    assert_eq!(sick.lasting(later), BTreeSet::from([DEVICE.to_owned()]));
    assert_eq!(sick.update(&look(Health::Healthy), later).len(), 1);
    sick.update(&ill, later);
    assert!(sick.lasting(later).is_empty());
}

#[test]
fn drain_evicts_and_cordon_does_not() {
    for drains in [false, true] {
        let mut inventory = inventory();
        let cordon = Cordon {
            since: Default::default(),
            reason: None,
            drains,
        };
        inventory.snapshot.gpus[0].closed = Some(Closed {
            cordon: Some(cordon),
            ..Closed::default()
        });
        assert_eq!(seen(&inventory, true), Health::Healthy);
        let evicted: Vec<String> = drained(&inventory, POOL).collect();
        assert_eq!(evicted, vec![DEVICE.to_owned(); usize::from(drains)]);
        assert_eq!(drained(&inventory, "other").count(), 0);
    }
}
