//! One slice for a pod.

use crate::reuse::changes;
use testkit::prelude::*;

fn in_pod(setup: &Setup, slice: &str, pod: &str) -> Bundle {
    let bundle = setup.asking(slice, SHOW);
    bundle.annotate("runmig.dev/scope", "pod");
    bundle.annotate("io.kubernetes.cri-o.SandboxID", pod);
    bundle
}

#[test]
fn two_containers_on_runc_share_it() {
    let setup = Setup::of(Low::Runc);
    let ids = [unique(), unique()];
    let create = |id: &String| setup.create(&in_pod(&setup, "1g.10gb", "pod-1"), id);
    let saw = ids.each_ref().map(create);
    let instance = setup.machine.the_instance();
    for (id, saw) in ids.iter().zip(saw) {
        setup.finishes(id);
        assert_eq!(visible(&saw.stdout_now()), Some(instance.uuid.as_str()));
    }
    let table = setup.tells(&["list"]);
    assert_eq!(table.matches("ready, shared").count(), 2, "{table}");
    // A pod beside it has its own.
    let other = in_pod(&setup, "1g.10gb", "pod-2");
    let seen = setup.run(&other).stdout;
    assert_ne!(visible(&seen), Some(instance.uuid.as_str()));

    let line = setup.refused(&in_pod(&setup, "2g.20gb", "pod-1"));
    let why = "of the same pod has a 1g.10gb for all of them, and this one asks for 2g.20gb";
    has(&line, why);
    let alone = setup.asking("1g.10gb", SHOW);
    alone.annotate("runmig.dev/scope", "pod");
    has(&setup.refused(&alone), "the engine names no pod");

    let [one, two] = ids;
    setup.runmig(&["delete", &one]).ok();
    assert_eq!(setup.machine.the_instance(), instance);
    setup.runmig(&["delete", &two]).ok();
    setup.nothing_is_left();
}

/// A container of a pod is restarted while the others run; the last one takes the slice with it.
#[test]
fn last_holder_releases_it() {
    let world = World::small();
    for id in ["a", "b", "c"] {
        world.create_in_pod(id, "p");
    }
    let made = world.the_instance();
    for id in ["a", "b", "a", "c"] {
        world.delete(id);
        assert_eq!(world.the_instance(), made);
        world.create_in_pod(id, "p");
        world.nothing_lost_nothing_given_twice().unwrap();
    }
    // Every way to release it.
    world.abandon("a");
    world.gc().ok();
    assert_eq!(world.the_instance(), made);
    world.abandon("b");
    world.ctl(&["release", "b"]).ok();
    assert_eq!(world.the_instance(), made);
    let destroyed = changes(&world, || drop(world.delete("c")));
    assert_eq!(destroyed.len(), 2, "{destroyed:?}");
    world.as_if_nothing_had_been().unwrap();
}

/// The one that made it fails, and the other lives on with it.
/// Failure: the creator of a shared slice fails, or dies half way
#[test]
fn second_keeps_it_after_failed_first() {
    let world = World::small();
    world.bundle_in_pod("a", world.profile, "p");
    let (first, opened) = world.halted("a", "create-waits");
    world.behave("");
    world.create_in_pod("b", "p");
    let made = world.the_instance();
    first.kill();
    drop(opened);
    world.delete("a");
    world.gc().ok();
    assert_eq!(world.the_instance(), made);
    world.nothing_lost_nothing_given_twice().unwrap();
    world.all_go(&["b"]);
}

/// Eight containers of two pods at once, and back at once: two instances, each made and destroyed once.
/// Failure: containers that share a slice come and go at once
#[test]
fn shares_among_concurrent_creates() {
    let world = World::small();
    // So that many come while the first is at it.
    world.takes("nvmlGpuInstanceCreateComputeInstance", 100);
    world.takes("nvmlGpuInstanceDestroy", 50);
    for round in 0..3 {
        let ids: Vec<String> = (0..8).map(|n| format!("c{n}")).collect();
        for (n, id) in ids.iter().enumerate() {
            world.bundle_in_pod(id, world.profile, &format!("p{}", n % 2));
        }
        let made = changes(&world, || {
            let (_, refused) = world.create_at_once(&ids);
            assert_eq!(refused, [""; 0]);
        });
        assert_eq!(made.len(), 4, "{round}: {made:?}");
        assert_eq!(world.instances().len(), 2);
        world.nothing_lost_nothing_given_twice().unwrap();
        let destroyed = changes(&world, || world.delete_at_once(&ids));
        assert_eq!(destroyed.len(), 4, "{round}: {destroyed:?}");
        world.as_if_nothing_had_been().unwrap();
    }
}

/// A kill hits its create half way. The pod's next container begins anew.
#[test]
fn second_survives_killed_first() {
    let world = World::small();
    world.bundle_in_pod("a", world.profile, "p");
    let call = "nvmlGpuInstanceCreateComputeInstance";
    world.kills(call, Moment::After, &mut world.create_command("a"));
    world.create_in_pod("b", "p");
    world.nothing_lost_nothing_given_twice().unwrap();
    assert_eq!(world.leases().len(), 1);
    fs::remove_dir_all(world.path("bundles").join("a")).unwrap();
    world.all_go(&["b"]);
}

/// The pod's next container does not get a slice that could not be destroyed.
#[test]
fn never_shares_instance_being_released() {
    let world = World::small();
    world.create_in_pod("a", "p");
    let made = world.the_instance();
    let held = crate::reuse::hold(&world, made.gi);
    world.delete("a");
    assert_eq!(world.lease_of("a")["state"], "quarantined");
    world.create_in_pod("b", "p");
    assert_ne!(world.lease_of("b")["gpuInstanceID"], made.gi);
    world.nothing_lost_nothing_given_twice().unwrap();
    drop(held);
    world.all_go(&["b"]);
}
