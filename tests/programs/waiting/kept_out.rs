//! The requests that a queue keeps out: a place that a waiting request could never have keeps out
//! nobody, and one that may yet come back does.

use super::*;

/// No create waits for an alternative that a limit forbids for good.
#[test]
fn reserves_nothing_beyond_a_limit() {
    let world = World::of(BIG, 1);
    let limit = "namespace = \"team\"\nmemory = \"20Gi\"";
    world.configure(&format!(
        "policy.slices_per_container = 2\n[[policy.limit]]\n{limit}"
    ));
    world.create_asking("four", "4g.40gb");
    world.create_asking("two", "2g.20gb");
    let asks = [
        ("runmig.dev/slice", "3g.40gb,1g.20gb*2,2g.20gb"),
        ("io.kubernetes.cri.sandbox-namespace", "team"),
    ];
    let waiter = world.waits("waiter", &asks);
    // In the way of a 3g.40gb and of one of two 1g.20gb, and of no 2g.20gb.
    world.create_asking("late", "1g.10gb");
    assert_eq!(world.lease_of("late")["migPlacement"]["start"], 6);
    world.delete("two");
    waiter.end().ok();
    assert_eq!(world.lease_of("waiter")["profile"], "2g.20gb");
    world.all_go(&["four", "late", "waiter"]);
}

/// A slice that could not be destroyed is tried again, so its place is one that comes back: who waits
/// for it is not delayed by those who come later.
/// Failure: runmig quarantines a place that a queued create needs
#[test]
fn waits_for_quarantined_place() {
    let world = World::small();
    world.abandoned("stuck");
    let held = world.hold(0, world.the_instance().gi, Some(0));
    world.gc().exits(1);
    assert_eq!(world.lease_of("stuck")["state"], "quarantined");
    let large = world.waits_asking("large", "4g.24gb");
    world.refuses("late", "1 earlier request (container large, 4g.24gb)");
    drop(held);
    world.gc().ok();
    large.end().ok();
    world.all_go(&["large"]);
}
