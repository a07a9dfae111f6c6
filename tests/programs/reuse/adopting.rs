//! Instances that an administrator made.

use crate::reuse::{changes, hold};
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
        setup.runmig(&["start", &id]).ok();
        until("it has ended", || {
            setup.runmig(&["state", &id]).ok().json()["status"] == "stopped"
        });
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
            said(&mut w.migctl(&["release", "a"])).ok();
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
    let makes_its_own = |what: &str, prepare: &dyn Fn(&World) -> Option<Box<dyn std::any::Any>>| {
        let world = adopting();
        let kept = prepare(&world);
        let before = world.instances();
        world.create("a");
        assert_eq!(world.lease_of("a")["adopted"], false, "{what}");
        world.delete("a");
        assert_eq!(world.instances(), before, "{what}");
        drop(kept);
    };
    makes_its_own("adoption is off", &|world| {
        world.configure("");
        world.admin_leaves(0, world.profile, 1);
        None
    });
    makes_its_own("it has no compute instance", &|world| {
        world.admin_creates(0, world.profile, 1, false);
        None
    });
    makes_its_own("another profile", &|world| {
        world.admin_leaves(0, "2g.12gb", 2);
        None
    });
    makes_its_own("somebody computes on it", &|world| {
        world.admin_leaves(0, world.profile, 1);
        Some(Box::new(hold(world, 0, world.the_instance().gi)))
    });
    makes_its_own("somebody has it open", &|world| {
        world.admin_leaves(0, world.profile, 1);
        let gi = world.the_instance().gi;
        let access = format!("proc/driver/nvidia/capabilities/gpu0/mig/gi{gi}/access");
        let open = fs::File::open(world.machine().join(access)).unwrap();
        Some(Box::new(open))
    });
}

/// A compute instance that leaves room for another does not fill its GPU instance.
#[test]
fn never_adopts_partly_filled_instance() {
    let world = adopting();
    world.change(|machine, holds| {
        let profiles = &machine.gpu(0).unwrap().model().profiles;
        let two = profiles.iter().find(|p| p.name == "2g.12gb").unwrap().id;
        let gi = machine.create_gpu_instance(0, two, None, holds).unwrap();
        // Compute instance profile 0 has one compute slice of the two.
        machine.create_compute_instance(0, gi.id, 0, None).unwrap();
    });
    let before = world.instances();
    world.bundle_asking("a", "2g.12gb");
    world.create("a");
    assert_eq!(world.lease_of("a")["adopted"], false);
    world.delete("a");
    assert_eq!(world.instances(), before);
}

/// They are handed out before anything is made; each to one container.
#[test]
fn first_theirs_then_ours() {
    let world = adopting();
    let (one, two) = (
        world.admin_leaves(0, world.profile, 0),
        world.admin_leaves(0, world.profile, 2),
    );
    let ids = ["a", "b", "c", "d"];
    ids.iter().for_each(|id| drop(world.create(id)));
    world.nothing_lost_nothing_given_twice().unwrap();
    let uuid = |id| world.uuid_in_bundle(id).unwrap();
    let mut first = [uuid("a"), uuid("b")];
    first.sort();
    let mut theirs = [one, two];
    theirs.sort();
    assert_eq!(first, theirs);
    said(&mut world.create_command("e")).refused_for("memory slices are free");
    ids.iter().for_each(|id| drop(world.delete(id)));
    world.as_if_nothing_had_been().unwrap();
}

/// For every alternative, and for each of several slices, it would be asked anew.
#[test]
fn asks_driver_once_for_processes() {
    let world = adopting();
    world.configure("adopt = true\npolicy.slices_per_container = 2");
    world.admin_leaves(0, world.profile, 0);
    let held = hold(&world, 0, world.the_instance().gi);
    for n in 1..world.slots {
        world.create(&format!("other-{n}"));
    }
    let asks = |id: &str, slice: &str| {
        world.bundle_asking(id, slice);
        let calls = world.driver_calls(|| {
            said(&mut world.create_command(id)).refused_for("memory slices are free");
        });
        let asks = calls
            .iter()
            .filter(|call| call.contains("RunningProcesses"));
        asks.count()
    };
    let once = asks("a", "1g.6gb");
    assert!(once > 0);
    assert_eq!(asks("b", "1g.6gb,5Gi"), once);
    // One could be made, and the second slice is looked for where the first was.
    world.delete("other-1");
    assert_eq!(asks("c", "1g.6gb*2"), once);
    drop(held);
}
