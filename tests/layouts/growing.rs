//! Instances that stay and get more compute instances.

use crate::faults_support::{BIG, World};
use crate::leases::{apply, records};
use crate::support::said;

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
