//! Only GPUs that come, go or change their MIG mode start a new generation.

use crate::world::World;
use runmig_dra::resource_slices::{Layout, Published, Use};
use runmig_lease::model::{GpuInstance, MigMode, Placement};
use runmig_lease::placement::Slot;

fn generation(layout: &Layout) -> i64 {
    let mut all = layout.slices.iter().map(|slice| slice.spec.pool.generation);
    let first = all.next().unwrap();
    assert!(all.all(|generation| generation == first));
    first
}

#[test]
fn slices_and_claims_keep_generation() {
    let mut world = World::of("a100-80gb", 2);
    let mut last = world.lay_out(&Published::default());
    assert_eq!(generation(&last), 1);
    let placement = Placement { start: 0, size: 4 };
    let slot = Slot::new(&"GPU-1".into(), 9, placement);
    world.ledger.uses.push(Use { slot, claim: None });
    world.snapshot.gpus[0].instances.push(GpuInstance {
        id: 0,
        profile_id: 9,
        placement,
    });
    last = world.lay_out(&last.published);
    assert_eq!(generation(&last), 1);
    world.promise(&"gpu-0000-07-00-0-mig-1g-10gb-6-1".parse().unwrap());
    last = world.lay_out(&last.published);
    assert_eq!(generation(&last), 1);
    let sick = "gpu-0000-0f-00-0-mig-1g-10gb-6-1";
    world.sick.insert(sick.to_owned());
    assert_eq!(generation(&world.lay_out(&last.published)), 1);
}

#[test]
fn gpus_and_mig_mode_start_generations() {
    let both = World::of("a100-80gb", 2);
    let first = World::of("a100-80gb", 1).lay_out(&Published::default());
    let second = both.lay_out(&first.published);
    assert_eq!(generation(&second), 2);
    let mut off = both.clone();
    off.snapshot.gpus[1].mig = MigMode::Disabled;
    off.snapshot.gpus[1].profiles.clear();
    let third = off.lay_out(&second.published);
    assert_eq!(generation(&third), 3);
    assert_eq!(third.slices.len(), first.slices.len());
    assert_eq!(generation(&off.lay_out(&third.published)), 3);
    assert_eq!(generation(&both.lay_out(&third.published)), 4);
}

/// The counter values and the order of a layout from scratch are those of one that goes on.
#[test]
fn restart_changes_nothing() {
    let mut world = World::of("a100-80gb", 3);
    let last = world.lay_out(&Published::default());
    world.promise(&"gpu-0000-07-00-0-mig-2g-20gb-0-2".parse().unwrap());
    let last = world.lay_out(&last.published);
    // A restart reads the ResourceSlices from the API, and knows no GPU.
    let read = Published::of(&last.slices);
    assert_eq!(world.lay_out(&read), last);
}
