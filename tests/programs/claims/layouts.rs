//! Claims beside the layout of an administrator.

use super::*;
use containers::{Init, hook};

/// `migctl apply` of so many of the smallest slices on GPU 0.
fn apply(world: &World, count: u32) -> Said {
    let file = world.path("layout.json");
    let text = format!(
        r#"{{"version": "v1", "mig-configs": {{"wanted": [{{"devices": [0], "mig-enabled": true,
            "mig-devices": {{"1g.6gb": {count}}}}}]}}}}"#
    );
    fs::write(&file, text).unwrap();
    said(&mut world.migctl(&["apply", "-f", file.to_str().unwrap()]))
}

fn states(world: &World) -> Vec<String> {
    let leases = world.leases();
    let states = leases
        .iter()
        .map(|lease| lease["state"].as_str().unwrap().to_owned());
    states.collect()
}

/// The claim goes first, and the hook at the end of the container only writes the ledger.
#[test]
fn layout_outlives_claim_and_container() {
    let world = prepared();
    let slice = world.the_instance().generation;
    let init = Init::new();
    hook(&world, "attach", "a", Some(&init)).ok();
    apply(&world, 1).ok();
    unprepare(&world, "a").unwrap();
    drop(init);
    hook(&world, "detach", "a", None).ok();
    with(&world, |leases| leases.release_ended()).unwrap();
    world.gc().ok();
    assert_eq!(states(&world), ["layout"]);
    assert_eq!(world.the_instance().generation, slice);
}

#[test]
fn claim_names_layout_in_its_place() {
    let world = World::small();
    apply(&world, 4).ok();
    let refused = prepare(&world, "a", &place(&world, "1g.6gb", 0, 1)).unwrap_err();
    has(&refused.line(), "belongs to layout wanted");
    assert_eq!(states(&world), ["layout"; 4]);
}

/// A layout leaves the state of a slice that waits for its validation.
#[test]
fn promised_idle_slice_is_validated() {
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    world.create("one");
    let start = world.the_instance().start;
    world.delete("one");
    promise(&world, "a", &place(&world, "1g.6gb", start, 1)).unwrap();
    assert_eq!(states(&world), ["promised"]);
    let records = || fs::read(world.state().join("ledger.json")).unwrap();
    let before = records();
    apply(&world, 1).ok();
    assert_eq!(records(), before);
}
