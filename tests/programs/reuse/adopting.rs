//! Instances that an administrator made.

use crate::reuse::{changes, hold, open};
use testkit::prelude::*;

fn adopting() -> World {
    let world = World::small();
    world.configure("adopt = true");
    world
}

#[test]
fn container_on_runc_returns_adopted_slice() {
    let setup = Setup::of(Low::Runc);
    setup.configure("adopt = true");
    let make = ["--gpu", "1", "--profile", "2g.20gb", "--start", "2"];
    setup.sim("create", &make);
    let theirs = setup.machine.the_instance();
    for _ in 0..2 {
        let bundle = setup.asking("2g.20gb", SHOW);
        let id = unique();
        let created = setup.create(&bundle, &id);
        let lease = setup.the_lease();
        assert_eq!(lease["adopted"], true);
        assert_eq!(lease["state"], "ready");
        has(&setup.tells(&["list"]), "ready, adopted");
        setup.finishes(&id);
        let saw = created.stdout_now();
        assert_eq!(visible(&saw), Some(theirs.uuid.as_str()));
        assert_eq!(nodes(&saw), setup.machine.nodes_of(&theirs));
        setup.runmig(&["delete", &id]).ok();
        assert_eq!(setup.machine.the_instance(), theirs);
        assert!(setup.leases().is_empty());
        assert_eq!(bundle.names(), ["config.json", "rootfs"]);
    }
}

#[test]
fn release_leaves_adopted_instance() {
    let world = adopting();
    let theirs = world.admin_leaves(0, world.profile, 1);
    type Way = fn(&World);
    let ways: [(&str, Way); 5] = [
        ("delete", |w| drop(w.delete("a"))),
        ("the hook", |w| {
            let lease = w.abandon("a");
            assert!(settled(&w.hook("a", &lease)).status.success());
        }),
        ("gc", |w| {
            w.abandon("a");
            w.gc().ok();
        }),
        ("release", |w| {
            w.abandon("a");
            w.ctl(&["release", "a"]).ok();
        }),
        ("a create that fails", |w| {
            w.delete("a");
            w.behave("create-fails-late");
            said(&mut w.create_command("b")).exits(1);
            w.behave("");
        }),
    ];
    for (name, way) in ways {
        let calls = changes(&world, || {
            world.create("a");
            assert_eq!(world.uuid_in_bundle("a").as_ref(), Some(&theirs), "{name}");
            world.nothing_lost_nothing_given_twice().unwrap();
            way(&world);
        });
        assert_eq!(calls, [""; 0], "{name}");
        world.as_if_nothing_had_been().unwrap();
    }
}

#[test]
fn adopts_whole_unused_matches_alone() {
    type Prepare = fn(&World) -> Option<Box<dyn std::any::Any>>;
    let ways: [(&str, &str, Prepare); 6] = [
        ("adoption is off", "1g.6gb", |world| {
            world.configure("");
            world.admin_leaves(0, "1g.6gb", 1);
            None
        }),
        ("it has no compute instance", "1g.6gb", |world| {
            world.admin_creates(0, "1g.6gb", 1, false);
            None
        }),
        ("another profile", "1g.6gb", |world| {
            world.admin_leaves(0, "2g.12gb", 2);
            None
        }),
        ("somebody computes on it", "1g.6gb", |world| {
            world.admin_leaves(0, "1g.6gb", 1);
            Some(Box::new(hold(world, world.the_instance().gi)))
        }),
        ("somebody has it open", "1g.6gb", |world| {
            world.admin_leaves(0, "1g.6gb", 1);
            Some(Box::new(open(world, world.the_instance().gi)))
        }),
        (
            "its compute instance leaves room for another",
            "2g.12gb",
            |world| {
                let gi = world.admin_creates(0, "2g.12gb", 0, false);
                // Compute instance profile 0 has one compute slice of the two.
                world.change(|machine, _| machine.create_compute_instance(0, gi, 0, None).unwrap());
                None
            },
        ),
    ];
    for (what, slice, prepare) in ways {
        let world = adopting();
        let kept = prepare(&world);
        let before = world.instances();
        world.create_asking("a", slice);
        assert_eq!(world.lease_of("a")["adopted"], false, "{what}");
        world.delete("a");
        assert_eq!(world.instances(), before, "{what}");
        drop(kept);
    }
}

/// They are handed out before anything is made; each to one container.
#[test]
fn first_theirs_then_ours() {
    let world = adopting();
    let theirs = [0, 2].map(|start| world.admin_leaves(0, world.profile, start));
    let ids = ["a", "b", "c", "d"];
    world.create_all(&ids);
    world.nothing_lost_nothing_given_twice().unwrap();
    let first = ["a", "b"].map(|id| world.uuid_in_bundle(id).unwrap());
    assert_eq!(BTreeSet::from(first), BTreeSet::from(theirs));
    world.refuses("e", "memory slices are free");
    world.ends(&ids);
}

/// For every alternative, and for each of several slices, it would be asked anew.
#[test]
fn asks_driver_once_for_processes() {
    let world = adopting();
    world.configure("adopt = true\npolicy.slices_per_container = 2");
    world.admin_leaves(0, world.profile, 0);
    let held = hold(&world, world.the_instance().gi);
    for n in 1..world.slots {
        world.create(&format!("other-{n}"));
    }
    let asks = |id: &str, slice: &str| {
        world.bundle_asking(id, slice);
        let calls = world.driver_calls(|| {
            world.refuses(id, "memory slices are free");
        });
        calls.join(" ").matches("RunningProcesses").count()
    };
    let once = asks("a", "1g.6gb");
    assert!(once > 0);
    assert_eq!(asks("b", "1g.6gb,5Gi"), once);
    // One could be made, and the second slice is looked for where the first was.
    world.delete("other-1");
    assert_eq!(asks("c", "1g.6gb*2"), once);
    drop(held);
}
