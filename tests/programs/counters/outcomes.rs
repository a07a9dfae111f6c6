//! Every end of a create has its counter.

use crate::counters::{counts, creates};
use runmig_lease::counters::{BOUNDS_MS, LeaseKind, Outcome, Part, Times};
use testkit::prelude::*;

fn asks(world: &World, id: &str, slice: &str) -> bool {
    world.bundle_asking(id, slice);
    said(&mut world.create_command(id)).status.success()
}

#[test]
fn container_without_request_is_not_counted() {
    let world = World::small();
    world.bundle_saying("plain", &[]);
    world.create("plain");
    assert!(!world.state().join("ledger.json").exists());
}

#[test]
fn counts_creates_without_room() {
    let world = World::small();
    // The deletes leave the second and the fourth place free.
    for id in ["a", "b", "c", "d"] {
        assert!(asks(&world, id, "1g.6gb"));
    }
    assert!(!asks(&world, "full", "1g.6gb"));
    let gone: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
    let at = |id: &String| world.lease_of(id)["migPlacement"]["start"].as_u64();
    for id in gone
        .iter()
        .filter(|id| at(id).is_some_and(|start| start % 2 == 1))
    {
        world.delete(id);
    }
    assert!(!asks(&world, "fragmented", "2g.12gb"));
    assert!(!asks(&world, "never", "9g.90gb"));
    world.configure("wait = \"50ms\"");
    assert!(!asks(&world, "late", "2g.12gb"));
    let all = creates(&world, LeaseKind::Slice);
    let expected = [
        (Outcome::Created, 4),
        (Outcome::Full, 1),
        (Outcome::Fragmented, 1),
        (Outcome::Unsatisfiable, 1),
        (Outcome::TimedOut, 1),
    ];
    assert_eq!(all, expected);
}

#[test]
fn counts_limited_creates() {
    let world = World::small();
    world.configure("[[policy.limit]]\nslices = 1\n");
    assert!(asks(&world, "one", "1g.6gb"));
    assert!(!asks(&world, "two", "1g.6gb"));
    let all = creates(&world, LeaseKind::Slice);
    assert_eq!(all, [(Outcome::Created, 1), (Outcome::Limited, 1)]);
}

#[test]
fn times_have_all_parts() {
    let world = World::small();
    world.takes("nvmlDeviceCreateGpuInstanceWithPlacement", 300);
    world.create("one");
    let counts = counts(&world);
    let of = |part| counts.times(Times::Create(LeaseKind::Slice, part)).unwrap();
    for part in Part::ALL {
        assert_eq!(of(*part).classes.iter().sum::<u64>(), 1, "{part:?}");
    }
    let (total, driver, wait) = (of(Part::Total), of(Part::Driver), of(Part::Wait));
    assert!(
        driver.sum.as_millis() >= 300 && total.sum >= driver.sum,
        "{driver:?}"
    );
    assert!(wait.sum.is_zero(), "{wait:?}");
    let first = BOUNDS_MS.iter().position(|bound| *bound > 300).unwrap();
    assert!(
        driver.classes[..first].iter().all(|n| *n == 0),
        "{driver:?}"
    );
}
