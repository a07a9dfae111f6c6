//! Every actor of a release has its counter.

use crate::counters::{counts, get, releases};
use nvml_sim::fault::Outcome as Fault;
use runmig_lease::counters::{Actor, Counter, DriverFailure, LeaseKind, ResourceKind, Times};
use testkit::prelude::*;

#[test]
fn counts_release_once_by_its_actor() {
    let world = World::small();
    // The stub runs the hook twice, and the delete looks again.
    world.behave("hooks-twice");
    world.comes_and_goes("one");
    assert_eq!(releases(&world), [(Actor::Hook, 1)]);
    world.behave("no-hooks");
    world.comes_and_goes("two");
    assert_eq!(releases(&world), [(Actor::Hook, 1), (Actor::Delete, 1)]);
    let counts = counts(&world);
    let times = counts.times(Times::Release(LeaseKind::Slice)).unwrap();
    assert_eq!(times.classes.iter().sum::<u64>(), 2);
}

#[test]
fn counts_releases_by_gc_and_operator() {
    let world = World::small();
    world.abandoned("one");
    world.tells(&["gc", "--dry-run"]);
    assert_eq!(counts(&world).last_collection, 0);
    assert_eq!(releases(&world), []);
    world.gc().ok();
    assert_eq!(releases(&world), [(Actor::Gc, 1)]);
    assert!(counts(&world).last_collection > 1_700_000_000);
    let lease = world.abandoned("two");
    world.ctl(&["release", &lease]).ok();
    assert_eq!(releases(&world), [(Actor::Gc, 1), (Actor::Operator, 1)]);
}

#[test]
fn counts_roll_back_of_failed_create() {
    let world = World::small();
    world.behave("create-fails-early");
    world.refuses("one", "");
    assert_eq!(releases(&world), [(Actor::Create, 1)]);
}

#[test]
fn counts_retries_quarantine_and_driver_errors() {
    let world = World::small();
    world.create("one");
    let in_use = Counter::DriverErrors(DriverFailure::Code(19));
    let retries = Counter::DestroyRetries(ResourceKind::Mig);
    let quarantines = Counter::Quarantines(ResourceKind::Mig);
    world.fault("nvmlComputeInstanceDestroy", 1, Some(2), Fault::Return(19));
    world.delete("one");
    assert_eq!((get(&world, retries), get(&world, in_use)), (2, 2));
    assert_eq!(get(&world, quarantines), 0);
    // Any other code is no reason to try again at once.
    world.create("two");
    world.fault("nvmlComputeInstanceDestroy", 1, None, Fault::Return(999));
    world.delete("two");
    assert_eq!(get(&world, quarantines), 1);
    let unknown = Counter::DriverErrors(DriverFailure::Code(999));
    assert!(get(&world, unknown) >= 1);
    assert_eq!(releases(&world), [(Actor::Hook, 1)]);
    // A later release begins with a retry, and counts one quarantine only.
    world.gc();
    assert_eq!(get(&world, quarantines), 1);
    world.no_faults();
    world.gc().ok();
    assert_eq!(releases(&world), [(Actor::Hook, 1), (Actor::Gc, 1)]);
    assert!(get(&world, retries) > 2);
}

#[test]
fn counts_failed_calls_and_no_answers() {
    let world = World::small();
    let errors = || -> Vec<(String, u64)> {
        let counts = counts(&world);
        let all = counts.driver_errors();
        all.map(|(code, n)| (code.to_owned(), n)).collect()
    };
    // Every look at a GPU ends a list with "invalid argument", and is told that some profiles are not supported.
    world.comes_and_goes("one");
    assert_eq!(errors(), []);
    // "Not found" answers a question, and is a failure of a change and of the look at what it made.
    let once = |call: &str, code| world.fault(call, 1, Some(1), Fault::Return(code));
    world.create("two");
    once("nvmlGpuInstanceGetInfo", 6);
    world.delete("two");
    assert_eq!(errors(), []);
    let create = "nvmlDeviceCreateGpuInstanceWithPlacement";
    for (n, call) in [(1, create), (2, "nvmlGpuInstanceGetInfo")] {
        world.no_faults();
        once(call, 6);
        world.refuses("three", "");
        assert_eq!(errors(), [("6".to_owned(), n)]);
    }
    world.no_faults();
    // The words of this failure ask the driver for the index of the GPU, which counts nothing.
    once("nvmlDeviceGetGpuInstances", 999);
    said(&mut world.create_command("four"));
    assert_eq!(errors()[1..], [("999".to_owned(), 1)]);
}
