//! Records that a killed apply leaves, met by an administrator's work before the collector.

use crate::layouts::leases::{apply, records, there};
use runmig_lease::store::Store;
use testkit::prelude::*;

const WANTED: &str = r#"{"1g.6gb": 2}"#;

/// Kills an apply at its first creation, and leaves an administrator's instance without a compute instance at the place of
/// the second.
fn world() -> World {
    let world = World::small();
    let call = "nvmlDeviceCreateGpuInstanceWithPlacement";
    world.kills(call, Moment::Before, &mut apply(&world, WANTED));
    let store = Store::existing(&world.state(), Duration::from_secs(10)).unwrap();
    let left = store.expect("a ledger").list().unwrap().entries;
    assert_eq!(left.len(), 2, "{left:?}");
    let planned = left.iter().find(|entry| entry.instance().planned);
    let slice = planned.expect("a planned instance").instance().slice();
    let start = slice.unwrap().placement.start;
    world.admin_creates(0, "1g.6gb", start, false);
    world
}

/// Failure: an administrator makes an instance where a killed apply had only planned one
#[test]
fn gc_leaves_foreign_instance() {
    let world = world();
    let theirs = there(&world);
    world.gc().ok();
    assert_eq!(there(&world), theirs);
    assert!(records(&world).is_empty());
}

#[test]
fn next_apply_replaces_empty_instance() {
    let world = world();
    said(&mut apply(&world, WANTED)).ok();
    let made = world.instances();
    assert_eq!((made.len(), records(&world).len()), (2, 2));
    assert!(made.iter().all(|i| i.uuids.len() == 1), "{made:?}");
}
