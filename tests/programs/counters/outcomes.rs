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
    world.create_saying("plain", &[]);
    assert!(!world.state().join("ledger.json").exists());
}

#[test]
fn counts_creates_without_room() {
    let world = World::small();
    // The deletes leave the second and the fourth place free.
    let full = world.full();
    assert!(!asks(&world, "late", "1g.6gb"));
    let at = |id: &str| world.lease_of(id)["migPlacement"]["start"].as_u64();
    let gone: Vec<&String> = { full.iter() }
        .filter(|id| at(id).unwrap() % 2 == 1)
        .collect();
    world.delete_all(&gone);
    assert!(!asks(&world, "fragmented", "2g.12gb"));
    assert!(!asks(&world, "never", "9g.90gb"));
    world.configure("wait = \"50ms\"");
    assert!(!asks(&world, "later", "2g.12gb"));
    use Outcome::{Created, Fragmented, Full, TimedOut, Unsatisfiable};
    let all = creates(&world, LeaseKind::Slice);
    assert_eq!(all[0], (Created, 4));
    let once = [Full, Fragmented, Unsatisfiable, TimedOut].map(|end| (end, 1));
    assert_eq!(all[1..], once);
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
    assert!(driver.sum.as_millis() >= 300, "{driver:?}");
    assert!(total.sum >= driver.sum, "{total:?}");
    assert!(wait.sum.is_zero(), "{wait:?}");
    let first = BOUNDS_MS.iter().position(|bound| *bound > 300).unwrap();
    let below: u64 = driver.classes[..first].iter().sum();
    assert_eq!(below, 0, "{driver:?}");
}
