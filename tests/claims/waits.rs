//! Obstacles that are on their way out: Prepare waits for them, since an error costs the pod a minute.

use super::*;
use std::sync::mpsc;

const LONG: Duration = Duration::from_secs(60);

/// The old pod was force-deleted, and its container computes on.
#[test]
fn waits_for_slice_in_use() {
    let world = World::small();
    let at = place(&world, "4g.24gb", 0, 4);
    prepare(&world, "old", &at).unwrap();
    let hold = world.hold(0, world.the_instance().gi, Some(0));
    assert!(
        unprepare(&world, "old")
            .unwrap_err()
            .line()
            .contains("in use")
    );
    let line = prepare(&world, "new", &at).unwrap_err().line();
    assert!(line.contains("claim team-a/old-gpu"), "{line}");
    assert!(line.contains("in use by another client"), "{line}");
    ends(&world, &at, || drop(hold));
}

/// The scheduler knows that the old claim is gone before the kubelet says so.
#[test]
fn waits_for_end_of_old_claim() {
    let world = World::small();
    let at = place(&world, "4g.24gb", 0, 4);
    prepare(&world, "old", &at).unwrap();
    assert!(prepare(&world, "new", &at).is_err());
    ends(&world, &at, || unprepare(&world, "old").unwrap());
}

/// Prepares the claim `new` while the obstacle goes.
pub fn ends(world: &World, at: &ClaimPlace, go: impl FnOnce()) {
    let (begun, is_begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let new = scope.spawn(move || {
            with(world, |leases| {
                begun.send(()).unwrap();
                leases.prepare(claim("new"), at, LONG).unwrap()
            })
        });
        is_begun.recv().unwrap();
        go();
        new.join().unwrap();
    });
    assert_eq!(the_lease(world)["claim"]["uid"], "new");
    world.the_instance();
}

/// A local slice on its way out counts too.
#[test]
fn releases_what_a_container_left() {
    let world = World::small();
    world.bundle_asking("a", "4g.24gb");
    world.create("a");
    let hold = world.hold(0, world.the_instance().gi, Some(0));
    world.delete("a");
    assert_eq!(the_lease(&world)["state"], "quarantined");
    drop(hold);
    let at = place(&world, "4g.24gb", 0, 4);
    prepare(&world, "new", &at).unwrap();
    assert_eq!(the_lease(&world)["claim"]["uid"], "new");
}
