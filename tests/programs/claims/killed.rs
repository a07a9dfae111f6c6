//! A Prepare that was killed: its promise stays, and nothing half-made does.

use super::*;

const CI: &str = "nvmlGpuInstanceCreateComputeInstance";

/// Kills a Prepare before it makes its compute instance. Its GPU instance is on record.
#[track_caller]
fn killed(world: &World, call: &str, moment: Moment) {
    world.kills(call, moment, &mut world.claims("prepare", "a"));
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
