//! GPUs that are left out, and the devices that claims keep.

use crate::scheduler::Scheduler;
use crate::world::{Card, World};
use runmig_dra::resource_slices::{Device, DeviceName, Layout, Published, Taint};
use runmig_lease::model::{Closed, Cordon, MigMode};
use runmig_lease::policy::{GpuName, Policy, Reserve, Subject};
use std::collections::HashSet;

fn h100s(count: usize) -> World {
    World::new(&vec![Card::of("h100-80gb"); count])
}

fn name(text: &str) -> DeviceName {
    text.parse().unwrap()
}

fn on<'l>(layout: &'l Layout, gpu: &str) -> Vec<&'l Device> {
    let scheduler = Scheduler::new(&layout.published.slices, &HashSet::new());
    let devices = scheduler.devices().iter().copied();
    devices.filter(|device| device.counter_set == gpu).collect()
}

const FIRST: &str = "gpu-0000-07-00-0";
const SECOND: &str = "gpu-0000-0f-00-0";
const CLAIMED: &str = "gpu-0000-0f-00-0-mig-3g-40gb-4-4";

#[test]
fn names_reason_for_each_gpu() {
    let mut world = h100s(6);
    world.snapshot.gpus[0].mig = MigMode::Unsupported;
    world.snapshot.gpus[1].mig = MigMode::Disabled;
    world.snapshot.gpus[2].mig = MigMode::Disabled;
    world.snapshot.gpus[2].mig_pending = Some(MigMode::Enabled);
    world.snapshot.gpus[3].pci_bus_id = "bus 7".to_owned();
    let rule = "excluded by policy.exclude_gpus";
    world.excluded.push(("GPU-4".into(), rule.to_owned()));
    world
        .snapshot
        .unreadable
        .push((6, "GPU is lost".to_owned()));
    let layout = world.lay_out(&Published::default());
    let reasons: Vec<(&str, &str)> = { layout.left_out.iter() }
        .map(|l| (l.what.as_str(), l.reason.as_str()))
        .collect();
    assert_eq!(
        reasons,
        [
            ("GPU 0 at 0000:07:00.0", "it does not support MIG"),
            ("GPU 1 at 0000:0f:00.0", "its MIG mode is off"),
            (
                "GPU 2 at 0000:17:00.0",
                "its MIG mode is off until the next reset of the GPU"
            ),
            ("GPU 3", "its PCI address \"bus 7\" is malformed"),
            ("GPU 4 at 0000:27:00.0", rule),
            ("GPU 6", "GPU is lost"),
        ]
    );
    assert_eq!(layout.published.gpus.len(), 1);
    assert_eq!(on(&layout, "gpu-0000-2f-00-0").len(), 25);
}

/// A claim has no pod yet, so a GPU that is reserved for some pods is for no claim.
#[test]
fn policy_leaves_out_gpus() {
    let mut world = h100s(3);
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
    let mut world = h100s(1);
    world.denied.push("7g.80gb".to_owned());
    world
        .allocated
        .insert(name("gpu-0000-07-00-0-mig-7g-80gb-0-8"));
    let layout = world.lay_out(&Published::default());
    let devices = on(&layout, FIRST);
    let large: Vec<_> = devices
        .iter()
        .filter(|d| *"7g.80gb" == *d.name.profile())
        .collect();
    assert!(matches!(large[..], [device] if matches!(device.taint, Some(Taint::Withdrawn(_)))));
    world.allocated.clear();
    let layout = world.lay_out(&Published::default());
    assert!(
        on(&layout, FIRST)
            .iter()
            .all(|d| *"7g.80gb" != *d.name.profile())
    );
}

/// With MIG off, the claim's device stays as it was, and no other claim gets one.
#[test]
fn claim_keeps_device_without_mig() {
    let mut world = h100s(2);
    let before = world.lay_out(&Published::default());
    world.promise(&name(CLAIMED));
    world.uses.clear();
    world.snapshot.gpus[1].mig = MigMode::Disabled;
    world.snapshot.gpus[1].profiles.clear();
    let layout = world.lay_out(&before.published);
    let devices = on(&layout, SECOND);
    let [device] = devices[..] else {
        panic!("{devices:?}");
    };
    let was = on(&before, SECOND)
        .into_iter()
        .find(|d| d.name == name(CLAIMED))
        .unwrap();
    assert_eq!(device.consumes, was.consumes);
    assert_eq!(
        device.taint,
        Some(Taint::Withdrawn("its MIG mode is off".to_owned()))
    );
    assert_eq!(on(&layout, FIRST).len(), 25);
}

/// A GPU that fails to answer keeps all devices, tainted, in the same generation.
#[test]
fn lost_gpu_keeps_devices_tainted() {
    let mut world = h100s(2);
    world.promise(&name(CLAIMED));
    let before = world.lay_out(&Published::default());
    let lost = world.snapshot.gpus.pop().unwrap();
    world
        .snapshot
        .unreadable
        .push((1, "GPU is lost (NVML 15)".to_owned()));
    let layout = world.lay_out(&before.published);
    let devices = on(&layout, SECOND);
    assert_eq!(devices.len(), 25);
    let taint = Some(Taint::Unhealthy("GPU is lost (NVML 15)".to_owned()));
    assert!(devices.iter().all(|device| device.taint == taint));
    assert_eq!(layout.published.slices[0].generation, 1);
    let scheduler = Scheduler::new(&layout.published.slices, &world.allocated);
    assert_eq!(scheduler.first("7g.80gb").unwrap().counter_set, FIRST);
    world.snapshot.unreadable.clear();
    world.snapshot.gpus.push(lost);
    let back = world.lay_out(&layout.published);
    assert!(
        on(&back, SECOND)
            .iter()
            .all(|device| device.taint.is_none())
    );
    assert_eq!(back.published.slices[0].generation, 1);
}

/// After a restart only the name of a device tells about a GPU that is gone.
#[test]
fn claim_keeps_device_of_missing_gpu() {
    let mut world = h100s(1);
    world.allocated.insert(name(CLAIMED));
    let layout = world.lay_out(&Published::default());
    let devices = on(&layout, SECOND);
    let [device] = devices[..] else {
        panic!("{devices:?}");
    };
    assert_eq!(device.name, name(CLAIMED));
    assert_eq!(device.consumes["memory-slice-4"], 1);
    assert_eq!(device.consumes["compute-slices"], 3);
    assert_eq!(
        device.taint,
        Some(Taint::Unhealthy("the GPU is gone".to_owned()))
    );
    // The scheduler finds each counter in the set.
    Scheduler::new(&layout.published.slices, &world.allocated);
}

/// Another model in the slot does not offer the claim's profile.
#[test]
fn claim_keeps_device_of_replaced_gpu() {
    let mut world = World::new(&[Card::of("a30")]);
    let claimed = name("gpu-0000-07-00-0-mig-7g-80gb-0-8");
    world.allocated.insert(claimed.clone());
    let layout = world.lay_out(&Published::default());
    let devices = on(&layout, FIRST);
    assert!(
        devices
            .iter()
            .any(|device| device.name == claimed && device.taint.is_some())
    );
    let scheduler = Scheduler::new(&layout.published.slices, &world.allocated);
    assert_eq!(scheduler.first("1g.6gb"), None);
}

#[test]
fn sick_gpu_is_tainted() {
    let mut world = h100s(2);
    world
        .unhealthy
        .insert("GPU-0".into(), "the GPU needs a reset".to_owned());
    let layout = world.lay_out(&Published::default());
    assert!(
        on(&layout, FIRST)
            .iter()
            .all(|device| device.taint.is_some())
    );
    let scheduler = Scheduler::new(&layout.published.slices, &world.allocated);
    assert_eq!(scheduler.first("1g.10gb").unwrap().counter_set, SECOND);
}

#[test]
fn cordoned_gpu_is_tainted_and_keeps_its_devices() {
    let mut world = h100s(2);
    world.snapshot.gpus[0].closed = Some(Closed {
        cordon: Some(Cordon {
            since: Default::default(),
            reason: Some("fan".to_owned()),
            drains: false,
        }),
        ..Closed::default()
    });
    let layout = world.lay_out(&Published::default());
    let taint = Some(Taint::Cordoned("cordoned since  (fan)".to_owned()));
    let devices = on(&layout, FIRST);
    assert!(!devices.is_empty() && devices.iter().all(|device| device.taint == taint));
    let scheduler = Scheduler::new(&layout.published.slices, &world.allocated);
    assert_eq!(scheduler.first("1g.10gb").unwrap().counter_set, SECOND);
    world.snapshot.gpus[0].closed = None;
    let open = world.lay_out(&layout.published);
    assert!(on(&open, FIRST).iter().all(|device| device.taint.is_none()));
}

#[test]
fn finds_place_of_a_device() {
    let world = h100s(2);
    let (gpu, profile) = name(CLAIMED).find(&world.snapshot).unwrap();
    assert_eq!((gpu.index, profile.name.as_str()), (1, "3g.40gb"));
    let find = |text: &str| name(text).find(&world.snapshot).unwrap_err().line();
    assert!(
        find("gpu-0000-17-00-0-mig-3g-40gb-4-4").contains("no GPU at PCI address 0000:17:00.0")
    );
    assert!(find("gpu-0000-0f-00-0-mig-3g-40gb-2-4").contains("GPU 1 offers no 3g.40gb at 2:4"));
}
