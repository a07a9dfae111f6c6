//! Claims beside the layout of an administrator.

use super::*;
use crate::layouts::leases::apply;
use containers::{hook, init};

/// The claim goes first, and the hook at the end of the container only writes the ledger.
#[test]
fn layout_outlives_claim_and_container() {
    let world = prepared(&["a"]);
    let slice = world.the_instance().generation;
    let init = init();
    hook(&world, "attach", "a", Some(&init)).ok();
    said(&mut apply(&world, r#"{"1g.6gb": 1}"#)).ok();
    unprepare(&world, "a").unwrap();
    drop(init);
    hook(&world, "detach", "a", None).ok();
    with(&world, |leases| leases.release_ended()).unwrap();
    world.gc().ok();
    assert_eq!(world.states(), ["layout"]);
    assert_eq!(world.the_instance().generation, slice);
}

#[test]
fn claim_names_layout_in_its_place() {
    let world = World::small();
    said(&mut apply(&world, r#"{"1g.6gb": 4}"#)).ok();
    let refused = prepare(&world, "a", &place(&world, "1g.6gb", 0, 1)).unwrap_err();
    has(&refused.line(), "belongs to layout wanted");
    assert_eq!(world.states(), ["layout"; 4]);
}

/// A layout leaves the state of a slice that waits for its validation.
#[test]
fn promised_idle_slice_is_validated() {
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    world.comes_and_goes("one");
    let start = world.the_instance().start;
    promise(&world, "a", &place(&world, "1g.6gb", start, 1)).unwrap();
    assert_eq!(world.states(), ["promised"]);
    let records = || fs::read(world.state().join("ledger.json")).unwrap();
    let before = records();
    said(&mut apply(&world, r#"{"1g.6gb": 1}"#)).ok();
    assert_eq!(records(), before);
}
