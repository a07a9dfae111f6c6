//! A Prepare that was killed: its promise stays, and nothing half-made does.

use super::*;
use nvml_sim::fault::{Moment, Outcome};

const CI: &str = "nvmlGpuInstanceCreateComputeInstance";

/// Kills a Prepare before it makes its compute instance. Its GPU instance is on record.
#[track_caller]
fn killed(world: &World, call: &str, moment: Moment) {
    world.fault(call, 1, Some(1), Outcome::Kill(moment));
    let ended = said(&mut world.claims("prepare", "a"));
    assert_eq!(ended.status.code(), None, "{ended:?}");
    world.no_faults();
    world.the_instance();
    assert_eq!(the_lease(world)["state"], "creating");
}

const CALLS: [(&str, Moment); 4] = [
    ("nvmlDeviceCreateGpuInstanceWithPlacement", Moment::After),
    (CI, Moment::Before),
    (CI, Moment::During),
    (CI, Moment::After),
];

/// Failure: a kill of Prepare between two calls of the driver
#[test]
fn collection_undoes_half_made_slice() {
    for (call, moment) in CALLS {
        let world = World::small();
        killed(&world, call, moment);
        world.gc().ok();
        assert!(world.instances().is_empty(), "{call} {moment:?}");
        assert_eq!(the_lease(&world)["state"], "promised");
        unprepare(&world, "a").unwrap();
        nothing_is_left(&world);
    }
}

#[test]
fn next_prepare_undoes_half_made_slice() {
    for (call, moment) in CALLS {
        let world = World::small();
        killed(&world, call, moment);
        let held = prepare(&world, "a", &place(&world, "1g.6gb", 0, 1)).unwrap();
        let made = world.the_instance();
        let uuid = held.instance.slice().unwrap().mig_uuid.clone();
        assert_eq!(uuid.as_ref(), made.uuids.first(), "{call} {moment:?}");
        unprepare(&world, "a").unwrap();
        nothing_is_left(&world);
    }
}

#[test]
fn unprepare_undoes_half_made_slice() {
    for (call, moment) in CALLS {
        let world = World::small();
        killed(&world, call, moment);
        unprepare(&world, "a").unwrap();
        nothing_is_left(&world);
    }
}
