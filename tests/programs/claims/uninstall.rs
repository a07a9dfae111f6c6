//! An operator ends all claims, after the Kubernetes driver has been removed.

use super::*;
use runmig_lease::store::Store;

/// Failure: the driver is removed for good, and claims stay on record
#[test]
fn releases_all_claims_by_hand() {
    let world = World::small();
    promise(&world, "promised", &place(&world, "1g.6gb", 3, 1)).unwrap();
    prepare(&world, "made", &place(&world, "1g.6gb", 0, 1)).unwrap();
    world.create("local");
    let told = world.tells(&["release", "--claims"]);
    for name in ["promised", "made"] {
        let line = format!("of claim team-a/{name}-gpu (pod team-a/train)");
        has(&told, &line);
    }
    // The container keeps its slice.
    assert_eq!(the_lease(&world)["container"], "local");
    assert_eq!(world.instances().len(), 1);
    let told = world.tells(&["release", "--claims"]);
    assert_eq!(told, "no claim has a lease\n");
}

#[test]
fn refuses_while_driver_runs() {
    let world = prepared(&["a"]);
    let config = Config::read(&world.path("config.toml")).unwrap();
    let store = Store::open(&config.state_dir, config.lock_timeout).unwrap();
    let driver = store.try_lock_driver().unwrap().unwrap();
    let words = "cannot release the claims: runmig-dra runs on this node, process";
    let words = format!("{words} {}", std::process::id());
    world.ctl(&["release", "--claims"]).exits(1).warns(&words);
    assert_eq!(the_lease(&world)["state"], "ready");
    drop(driver);
    world.ctl(&["release", "--claims"]).ok();
    nothing_is_left(&world);
}

/// Both at once are two requests, and neither is none.
#[test]
fn release_takes_id_or_claims() {
    let world = World::small();
    world.ctl(&["release"]).exits(2);
    world.ctl(&["release", "a", "--claims"]).exits(2);
}

/// With `-o json` it prints one object all the same.
#[test]
fn lists_none_where_each_release_fails() {
    let world = prepared(&["a"]);
    let held = world.hold(0, world.the_instance().gi, Some(0));
    let told = world.ctl(&["release", "--claims", "-o", "json"]).exits(1);
    let list: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(list["items"], json!([]));
    drop(held);
    world.ctl(&["release", "--claims"]).ok();
    nothing_is_left(&world);
}
