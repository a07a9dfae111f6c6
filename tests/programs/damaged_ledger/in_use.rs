//! The end of a damaged record's slice, which the driver has to confirm like that of any other.

use super::*;
use testkit::has;

/// The slice of a container that is gone; its record is damaged, and a process holds the instance.
fn held(world: &World) -> (String, nvml_sim::holders::Hold) {
    let lease = world.abandoned(ID);
    world.damage_all();
    let instance = world.the_instance();
    (lease, world.hold(instance.gpu, instance.gi, None))
}

#[test]
fn quarantines_damaged_slice_in_use() {
    let world = World::small();
    let (lease, held) = held(&world);
    let line = said(&mut world.migctl(&["release", &lease])).refused();
    has(&line, "in use");
    assert_eq!(world.instances().len(), 1);
    let on_record = &world.leases()[0];
    assert_eq!(on_record["state"], "quarantined", "{on_record}");
    assert!(on_record["error"].as_str().unwrap().contains("in use"));
    world.nothing_lost_nothing_given_twice().unwrap();
    drop(held);
    world.gc().ok();
    assert_eq!(world.instances(), []);
    assert_eq!(world.records(), [""; 0].map(PathBuf::from));
}

/// Failure: a damaged record's slice is in use at its release
#[test]
fn retries_damaged_slice_in_use() {
    let world = World::small();
    let (lease, held) = held(&world);
    nvml_sim::trace::on(&world.machine()).unwrap();
    let release = testkit::going(&mut world.migctl(&["release", &lease]));
    testkit::process::until("the driver refuses", || world.refusals() > 0);
    drop(held);
    release.end().ok();
    assert_eq!(world.instances(), []);
    assert_eq!(world.records(), [""; 0].map(PathBuf::from));
}

/// Nothing tells which of two compute instances was the container's.
/// Failure: a second, foreign compute instance is in a damaged record's slice
#[test]
fn keeps_damaged_slice_with_foreign_part() {
    let world = World::small();
    world.bundle_asking(ID, "2g.12gb");
    let lease = world.abandoned(ID);
    let instance = world.the_instance();
    world.change(|machine, holds| {
        let full = machine.gpu(instance.gpu).unwrap().gpu_instance(instance.gi);
        let ci = full.unwrap().compute_instances[0].id;
        machine
            .destroy_compute_instance(instance.gpu, instance.gi, ci, holds)
            .unwrap();
        for _ in 0..2 {
            machine
                .create_compute_instance(instance.gpu, instance.gi, 0, None)
                .unwrap();
        }
    });
    world.damage_all();
    let line = said(&mut world.migctl(&["release", &lease])).refused();
    has(&line, "which of 2 compute instances");
    world.gc().ok();
    world.nothing_lost_nothing_given_twice().unwrap();
    assert_eq!(world.the_instance().uuids.len(), 2);
}
