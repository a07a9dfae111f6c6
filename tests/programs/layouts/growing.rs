//! Instances that stay and get more compute instances.

use crate::layouts::leases::{apply, records};
use nvml_sim::engine::ONE_SLICE_REV1;
use testkit::faults::{BIG, World};
use testkit::said;

#[test]
fn instance_stays_and_gets_larger_parts() {
    let world = World::of(BIG, 1);
    let gi = world.admin_creates(0, "7g.80gb", 0, false);
    world.change(|machine, _| {
        let gpu = machine.gpu(0).unwrap();
        let parts = gpu.ci_profiles_of(gpu.gpu_instance(gi).unwrap());
        let two = parts.iter().find(|part| part.slices == 2).unwrap().id;
        machine.create_compute_instance(0, gi, two, None).unwrap();
    });
    let before = world.the_instance();
    said(&mut apply(&world, r#"{"2c.7g.80gb": 3}"#)).ok();
    let after = world.the_instance();
    assert_eq!(after.generation, before.generation);
    assert_eq!(after.uuids.len(), 3);
    assert!(after.uuids.contains(&before.uuids[0]), "{after:?}");
    assert_eq!(records(&world).len(), 1);
}

/// The numbers of the profiles of all compute instances, in the order of the memory.
fn profiles(world: &World) -> Vec<u32> {
    world.change(|machine, _| {
        let gpu = machine.gpu(0).unwrap();
        let mut instances: Vec<_> = gpu.gpu_instances.iter().collect();
        instances.sort_by_key(|gi| gi.placement.start);
        { instances.into_iter() }
            .flat_map(|gi| gi.compute_instances.iter().map(|ci| ci.profile_id))
            .collect()
    })
}

/// Two profiles of a compute instance have one slice and differ in their multiprocessors.
#[test]
fn restore_gives_the_same_profiles() {
    let world = World::of(("H100-80GB", "2g.20gb", 3), 1);
    for (start, part) in [(0, ONE_SLICE_REV1), (2, 0)] {
        let gi = world.admin_creates(0, "2g.20gb", start, false);
        world.change(|machine, _| machine.create_compute_instance(0, gi, part, None).unwrap());
    }
    world.admin_creates(0, "1g.20gb", 4, true);
    let before = profiles(&world);
    assert_eq!(before, [ONE_SLICE_REV1, 0, ONE_SLICE_REV1]);
    let file = world.path("checkpoint.json");
    let file = file.to_str().unwrap();
    said(&mut world.migctl(&["checkpoint", "-f", file])).ok();
    let generations = || -> Vec<u64> { world.instances().iter().map(|i| i.generation).collect() };
    let there = generations();
    said(&mut world.migctl(&["restore", "-f", file])).ok();
    assert_eq!(generations(), there, "each instance is as wanted");
    said(&mut apply(&world, "{}")).ok();
    said(&mut world.migctl(&["restore", "-f", file])).ok();
    assert_eq!(profiles(&world), before);
    // The place of one slice is wanted with the other profile.
    let saved = std::fs::read_to_string(file).unwrap();
    let other = saved.replacen(r#"{"ProfileID":7,"#, r#"{"ProfileID":0,"#, 1);
    assert_ne!(other, saved);
    std::fs::write(file, other).unwrap();
    said(&mut world.migctl(&["restore", "-f", file])).ok();
    assert_eq!(profiles(&world), [0, 0, ONE_SLICE_REV1]);
}
