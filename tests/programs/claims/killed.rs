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
fn half_made_slice_is_undone() {
    type Undo = fn(&World);
    let ways: [(&str, Undo); 3] = [
        ("a collection", |w| {
            w.gc().ok();
            assert!(w.instances().is_empty());
            assert_eq!(the_lease(w)["state"], "promised");
        }),
        ("the next Prepare", |w| {
            let held = prepare(w, "a", &place(w, "1g.6gb", 0, 1)).unwrap();
            let uuid = held.instance.slice().unwrap().mig_uuid.clone();
            assert_eq!(uuid.as_ref(), w.the_instance().uuids.first());
        }),
        ("Unprepare alone", |_| ()),
    ];
    for (call, moment) in CALLS {
        for (name, undo) in ways {
            eprintln!("{name} after a kill {moment:?} {call}");
            let world = World::small();
            killed(&world, call, moment);
            undo(&world);
            ends_last(&world, "a");
        }
    }
}

/// As `half_destroyed::spares_instance_at_place_of_half_made_slice`, for a claim, whose promise stays.
/// Failure: a kill between the end of a half-made slice and the end of its record
#[test]
fn spares_instance_at_place_of_half_made_slice() {
    let world = World::small();
    world.fault(CI, 1, None, Outcome::Return(19));
    let kill = Outcome::Kill(Moment::After);
    world.fault("nvmlGpuInstanceDestroy", 1, Some(1), kill);
    let killed = said(&mut world.claims("prepare", "a"));
    assert_eq!(killed.status.code(), None, "{killed:?}");
    world.no_faults();
    assert!(world.instances().is_empty());
    let start = the_lease(&world)["migPlacement"]["start"].as_u64().unwrap();
    let gi = world.admin_creates(0, "1g.6gb", start as u32, true);
    world.gc().ok();
    assert_eq!(world.the_instance().gi, gi);
    assert_eq!(the_lease(&world)["state"], "promised");
}
