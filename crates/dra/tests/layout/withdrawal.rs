//! GPUs that are left out, and the devices that claims keep.

use crate::scheduler::{Device, Scheduler};
use crate::world::World;
use runmig_dra::resource_slices::{DeviceName, Layout, Published};
use runmig_lease::model::{Closed, Cordon, MigMode, Sign, SignKind};
use runmig_lease::policy::{GpuName, Policy, Reserve, Subject};
use std::collections::HashSet;
use std::rc::Rc;

fn lose(world: &mut World, gpu: u32) {
    let lost = (gpu, "GPU is lost".to_owned());
    world.snapshot.unreadable.push(lost);
}

/// The one device of a GPU.
#[track_caller]
fn the_device(layout: &Layout, gpu: &str) -> Rc<Device> {
    let devices = on(layout, gpu);
    assert_eq!(devices.len(), 1, "{devices:?}");
    devices[0].clone()
}

fn name(text: &str) -> DeviceName {
    text.parse().unwrap()
}

fn on(layout: &Layout, gpu: &str) -> Vec<Rc<Device>> {
    let scheduler = Scheduler::new(&layout.slices, &HashSet::new());
    let devices = scheduler.devices().iter().cloned();
    devices.filter(|device| device.counter_set == gpu).collect()
}

fn are_tainted(devices: &[Rc<Device>], taint: Option<&str>) -> bool {
    let mut taints = devices.iter().map(|device| device.taint.as_deref());
    !devices.is_empty() && taints.all(|its| its == taint)
}

const UNHEALTHY: Option<&str> = Some("runmig.dev/unhealthy");
const WITHDRAWN: Option<&str> = Some("runmig.dev/withdrawn");

const FIRST: &str = "gpu-0000-07-00-0";
const SECOND: &str = "gpu-0000-0f-00-0";
const CLAIMED: &str = "gpu-0000-0f-00-0-mig-3g-40gb-4-4";

#[test]
fn names_reason_for_each_gpu() {
    let mut world = World::of("h100-80gb", 6);
    world.snapshot.gpus[0].mig = MigMode::Unsupported;
    world.snapshot.gpus[1].mig = MigMode::Disabled;
    world.snapshot.gpus[2].mig = MigMode::Disabled;
    world.snapshot.gpus[2].mig_pending = Some(MigMode::Enabled);
    world.snapshot.gpus[3].pci_bus_id = "bus 7".to_owned();
    let rule = "excluded by policy.exclude_gpus";
    world.excluded.push(("GPU-4".into(), rule.to_owned()));
    lose(&mut world, 6);
    let layout = world.lay_out(&Published::default());
    let reasons: Vec<String> = { layout.left_out.iter() }
        .map(|l| format!("{}: {}", l.what, l.reason))
        .collect();
    let expected = [
        "GPU 0 at 0000:07:00.0: it does not support MIG",
        "GPU 1 at 0000:0f:00.0: its MIG mode is off",
        "GPU 2 at 0000:17:00.0: its MIG mode is off until the next reset of the GPU",
        "GPU 3: its PCI address \"bus 7\" is malformed",
        "GPU 4 at 0000:27:00.0: excluded by policy.exclude_gpus",
        "GPU 6: GPU is lost",
    ];
    assert_eq!(reasons, expected);
    assert_eq!(layout.published.gpus.len(), 1);
    assert_eq!(on(&layout, "gpu-0000-2f-00-0").len(), 25);
}

/// A claim has no pod yet, so a GPU that is reserved for some pods is for no claim.
#[test]
fn policy_leaves_out_gpus() {
    let mut world = World::of("h100-80gb", 3);
    let policy = Policy {
        exclude_gpus: vec![GpuName::Index(0)],
        reserve: vec![Reserve {
            gpus: vec![GpuName::Index(2)],
            namespace: Some("*".to_owned()),
            pod: None,
            user: None,
        }],
        ..Policy::default()
    };
    world.excluded = policy.excluded(&world.snapshot.gpus, &Subject::default());
    let layout = world.lay_out(&Published::default());
    let published: Vec<u32> = { layout.published.gpus.iter() }
        .map(|g| g.gpu.index)
        .collect();
    assert_eq!(published, [1]);
    let reasons: Vec<&str> = { layout.left_out.iter() }
        .map(|l| l.reason.as_str())
        .collect();
    let reserved = "reserved for namespace * by [[policy.reserve]] 1";
    assert_eq!(reasons, ["excluded by policy.exclude_gpus", reserved]);
}

#[test]
fn denied_profile_is_not_published() {
    let mut world = World::of("h100-80gb", 1);
    world.denied.push("7g.80gb".to_owned());
    let claimed = name("gpu-0000-07-00-0-mig-7g-80gb-0-8");
    world.ledger.allocated.insert(claimed);
    let large = |world: &World| {
        let mut devices = on(&world.lay_out(&Published::default()), FIRST);
        devices.retain(|d| *"7g.80gb" == *d.name.profile());
        devices
    };
    let kept = large(&world);
    assert!(kept.len() == 1 && are_tainted(&kept, WITHDRAWN));
    world.ledger.allocated.clear();
    assert_eq!(large(&world), []);
}

/// With MIG off, the claim's device stays as it was, and no other claim gets one.
#[test]
fn claim_keeps_device_without_mig() {
    let mut world = World::of("h100-80gb", 2);
    let before = world.lay_out(&Published::default());
    world.promise(&name(CLAIMED));
    world.ledger.uses.clear();
    world.snapshot.gpus[1].mig = MigMode::Disabled;
    world.snapshot.gpus[1].profiles.clear();
    let layout = world.lay_out(&before.published);
    let device = the_device(&layout, SECOND);
    let mut devices = on(&before, SECOND).into_iter();
    let was = devices.find(|d| d.name == name(CLAIMED)).unwrap();
    assert_eq!(device.consumes, was.consumes);
    assert_eq!(device.taint.as_deref(), WITHDRAWN);
    assert_eq!(on(&layout, FIRST).len(), 25);
}

/// A GPU that fails to answer keeps all devices, tainted, in the same generation.
#[test]
fn lost_gpu_keeps_devices_tainted() {
    let mut world = World::of("h100-80gb", 2);
    world.promise(&name(CLAIMED));
    let before = world.lay_out(&Published::default());
    let lost = world.snapshot.gpus.pop().unwrap();
    lose(&mut world, 1);
    let layout = world.lay_out(&before.published);
    let devices = on(&layout, SECOND);
    assert_eq!(devices.len(), 25);
    assert!(are_tainted(&devices, UNHEALTHY));
    assert_eq!(layout.slices[0].spec.pool.generation, 1);
    let scheduler = Scheduler::new(&layout.slices, &world.ledger.allocated);
    assert_eq!(scheduler.first("7g.80gb").unwrap().counter_set, FIRST);
    world.snapshot.unreadable.clear();
    world.snapshot.gpus.push(lost);
    let back = world.lay_out(&layout.published);
    assert!(are_tainted(&on(&back, SECOND), None));
    assert_eq!(back.slices[0].spec.pool.generation, 1);
}

/// After a restart only the name of a device tells about a GPU that is gone.
#[test]
fn claim_keeps_device_of_missing_gpu() {
    let mut world = World::of("h100-80gb", 1);
    world.ledger.allocated.insert(name(CLAIMED));
    let layout = world.lay_out(&Published::default());
    let device = the_device(&layout, SECOND);
    assert_eq!(device.name, name(CLAIMED));
    assert_eq!(device.consumes["memory-slice-4"], 1);
    assert_eq!(device.consumes["compute-slices"], 3);
    assert_eq!(device.taint.as_deref(), UNHEALTHY);
    // The scheduler finds each counter in the set.
    Scheduler::new(&layout.slices, &world.ledger.allocated);
}

/// Another model in the slot does not offer the claim's profile.
#[test]
fn claim_keeps_device_of_replaced_gpu() {
    let mut world = World::of("a30", 1);
    let claimed = name("gpu-0000-07-00-0-mig-7g-80gb-0-8");
    world.ledger.allocated.insert(claimed.clone());
    let layout = world.lay_out(&Published::default());
    let devices = on(&layout, FIRST);
    let is_kept = |device: &Rc<Device>| device.name == claimed && device.taint.is_some();
    assert!(devices.iter().any(is_kept));
    let scheduler = Scheduler::new(&layout.slices, &world.ledger.allocated);
    assert_eq!(scheduler.first("1g.6gb"), None);
}

/// Both keep their devices, which no other claim gets.
#[test]
fn sick_and_cordoned_gpus_are_tainted() {
    let sign = Sign {
        kind: SignKind::RecoveryAction,
        amount: 1,
    };
    let cordon = Cordon {
        since: Default::default(),
        reason: Some("fan".to_owned()),
        drains: false,
    };
    let cordoned = Some("runmig.dev/cordoned");
    for (signs, cordon, taint) in testkit::rows! {
        vec![sign], None => UNHEALTHY;
        Vec::new(), Some(cordon) => cordoned;
    } {
        let mut world = World::of("h100-80gb", 2);
        world.snapshot.gpus[0].closed = Some(Closed {
            signs,
            cordon,
            ..Closed::default()
        });
        let layout = world.lay_out(&Published::default());
        assert!(are_tainted(&on(&layout, FIRST), taint));
        let scheduler = Scheduler::new(&layout.slices, &world.ledger.allocated);
        assert_eq!(scheduler.first("1g.10gb").unwrap().counter_set, SECOND);
        world.snapshot.gpus[0].closed = None;
        let open = world.lay_out(&layout.published);
        assert!(are_tainted(&on(&open, FIRST), None));
    }
}

/// One that does not work may be alone on a GPU that does.
#[test]
fn sick_device_is_tainted() {
    let mut world = World::of("h100-80gb", 2);
    world.sick.insert(CLAIMED.to_owned());
    let layout = world.lay_out(&Published::default());
    assert!(are_tainted(&on(&layout, FIRST), None));
    let sick = |device: &&Rc<Device>| device.taint.as_deref() == UNHEALTHY;
    let devices = on(&layout, SECOND);
    let [device] = devices.iter().filter(sick).collect::<Vec<_>>()[..] else {
        panic!("{devices:?}");
    };
    assert_eq!(device.name, name(CLAIMED));
}

#[test]
fn finds_place_of_a_device() {
    let world = World::of("h100-80gb", 2);
    let (gpu, profile) = name(CLAIMED).find(&world.snapshot).unwrap();
    assert_eq!((gpu.index, profile.name.as_str()), (1, "3g.40gb"));
    let find = |text: &str| name(text).find(&world.snapshot).unwrap_err().line();
    for (device, words) in testkit::rows! {
        "gpu-0000-17-00-0-mig-3g-40gb-4-4" => "no GPU at PCI address 0000:17:00.0";
        "gpu-0000-0f-00-0-mig-3g-40gb-2-4" => "GPU 1 offers no 3g.40gb at 2:4";
    } {
        testkit::has(&find(device), words);
    }
}
