//! Slices that were released and wait for the next.

use crate::reuse::{changes, hold, open};
use testkit::prelude::*;

const KEPT: &str = "keep_idle = \"5m\"";

fn keeping() -> World {
    let world = World::small();
    world.configure(KEPT);
    world
}

#[test]
fn next_container_on_runc_reuses_it() {
    let setup = Setup::of(Low::Runc);
    setup.configure(KEPT);
    let bundle = setup.asking("1g.10gb", SHOW);
    let first = setup.run(&bundle);
    let instance = setup.machine.the_instance();
    assert_eq!(visible(&first.stdout), Some(instance.uuid.as_str()));
    assert_eq!(bundle.names(), ["config.json", "rootfs"]);

    let lease = setup.the_lease();
    assert_eq!(lease["state"], "idle");
    assert_eq!(lease["container"], Value::Null);
    assert!(lease["idleSince"].is_string(), "{lease}");
    let table = setup.tells(&["list"]);
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with("- ") && row.contains(" idle "), "{table}");
    let gc = setup.tells(&["gc"]);
    has(&gc, "kept");
    has(&gc, "it is idle, for ");

    // Another bundle and id; the same instance, sealed like a new one.
    let next = setup.asking("1g.10gb", SHOW);
    let second = setup.run(&next);
    assert_eq!(visible(&second.stdout), Some(instance.uuid.as_str()));
    assert_eq!(nodes(&second.stdout), setup.machine.nodes_of(&instance));
    assert_eq!(setup.machine.the_instance(), instance);

    // By hand it goes at once, by its lease: no container has the name.
    setup.migctl(&["release", ""]).refused();
    setup.machine.the_instance();
    let lease = setup.the_lease();
    let release = ["release", lease["id"].as_str().unwrap()];
    has(&setup.tells(&release), "which was idle");
    setup.nothing_is_left();
}

#[test]
fn reuses_slice_without_gpu_change() {
    let world = keeping();
    world.create("a");
    let made = world.the_instance();
    assert_eq!(changes(&world, || drop(world.delete("a"))), [""; 0]);
    assert_eq!(changes(&world, || drop(world.create("b"))), [""; 0]);
    assert_eq!(world.the_instance(), made);
    assert_eq!(world.uuid_in_bundle("b"), Some(made.uuids[0].clone()));
    world.nothing_lost_nothing_given_twice().unwrap();
    // The same container again, as an engine restarts one.
    world.delete("b");
    world.create("b");
    assert_eq!(world.the_instance(), made);
    // Collected, it is kept like one that was released.
    world.abandon("b");
    world.gc().ok();
    assert_eq!(world.states(), ["idle"]);
    world.tidy_up(&[]);
}

/// The last container has no say any more: its late hooks and deletes find nothing.
/// Failure: a late hook or delete of the last container of an idle slice
#[test]
fn last_container_cannot_release_it() {
    let world = keeping();
    world.create("a");
    let lease = world.lease_id("a");
    world.delete("a");
    let calm = |what| {
        settled(&world.hook("a", &lease)).ok();
        world.delete("a");
        assert_eq!(world.states(), [what]);
    };
    calm("idle");
    world.create("b");
    calm("ready");
    world.tidy_up(&["b"]);
}

#[test]
fn idle_slice_expires() {
    let (world, made) = World::with_idle_slice();
    world.configure("keep_idle = \"20ms\"");
    let would = || world.tells(&["gc", "--dry-run"]);
    until("its time is over", || would().contains("would be released"));
    // The next create destroys it, and makes one.
    world.create("b");
    assert_ne!(world.the_instance().generation, made.generation);
    world.delete("b");
    until("gc destroys it", || {
        world.gc().ok();
        world.instances().is_empty()
    });
    world.tidy_up(&[]);
}

/// Idle slices are room for others, and no more of them go than have to.
#[test]
fn idle_slice_makes_room() {
    let world = World::of(BIG, 1);
    world.configure(KEPT);
    world.delete_all(&world.full());
    assert_eq!(world.states(), ["idle"; 7]);
    world.create_asking("two", "2g.20gb");
    let (states, instances) = (world.states(), world.instances());
    let idle = states.iter().filter(|s| *s == "idle").count();
    assert!((idle, instances.len()) == (5, 6), "{states:?}");
    // All of them, if need be.
    world.delete("two");
    world.create_asking("seven", "7g.80gb");
    assert_eq!(world.the_instance().size, 8);
    world.nothing_lost_nothing_given_twice().unwrap();
    world.tidy_up(&["seven"]);
}

/// Room is also media engines, which lie nowhere: one slice can have all of them.
#[test]
fn idle_slice_frees_media_engines() {
    let world = World::of(("RTX-PRO-6000-96GB", "1g.24gb", 4), 1);
    world.configure(KEPT);
    world.create_asking("a", "1g.24gb+me.all");
    world.delete("a");
    let idle = world.the_instance();
    world.create_asking("b", "2g.48gb+me.all");
    assert_ne!(world.the_instance().profile_id, idle.profile_id);
    world.tidy_up(&["b"]);
}

/// Failure: a process still computes on an idle slice, or has it open
#[test]
fn never_reuses_slice_in_use() {
    let (world, made) = World::with_idle_slice();
    let held = hold(&world, made.gi);
    world.create("b");
    let lease = world.lease_of("b");
    assert_ne!(lease["gpuInstanceID"], made.gi, "{lease}");
    world.nothing_lost_nothing_given_twice().unwrap();
    let mut states = world.states();
    states.sort();
    assert_eq!(states, ["quarantined", "ready"]);
    drop(held);
    world.tidy_up(&["b"]);
}

/// Processes that were killed a moment ago are let go of a little late.
/// Failure: a create needs the room of a slice that has just become idle, and the driver still calls it in use
#[test]
fn waits_for_recently_released_slice() {
    const IN_USE: Outcome = Outcome::Return(19);
    let world = World::of(BIG, 1);
    world.configure(KEPT);
    world.comes_and_goes("a");
    world.fault("nvmlComputeInstanceDestroy", 1, Some(2), IN_USE);
    world.fault("nvmlGpuInstanceDestroy", 1, Some(2), IN_USE);
    world.create_asking("seven", "7g.80gb");
    assert_eq!(world.the_instance().size, 8);

    // The same where it would be handed out, and there is room for no other.
    world.delete("seven");
    world.no_faults();
    let held = hold(&world, world.the_instance().gi);
    nvml_sim::trace::on(&world.machine()).unwrap();
    let create = going(&mut world.create_command("seven"));
    until("a refusal", || world.refusals() > 0);
    drop(held);
    create.end().ok();
    world.nothing_lost_nothing_given_twice().unwrap();
    assert_eq!(world.states(), ["ready"]);
    world.tidy_up(&["seven"]);
}

/// The capability is open and nothing computes, so the driver lists no process.
#[test]
fn never_reuses_opened_slice() {
    let (world, made) = World::with_idle_slice();
    let open = open(&world, format!("{}/ci0", made.gi));
    world.create("b");
    // Nothing keeps the driver from destroying it, so it made room for a new one.
    assert_ne!(world.the_instance().generation, made.generation);
    drop(open);
    world.tidy_up(&["b"]);
}

/// An administrator destroyed it, or made another of it; or its boot is over.
/// Failure: an administrator destroys an idle slice, or creates another instance there
#[test]
fn drops_missing_or_changed_instance() {
    for (reboots, theirs) in [
        (false, None),
        (false, Some(("2g.12gb", 0))),
        (false, Some(("2g.12gb", 2))),
        (true, Some(("1g.6gb", 3))),
    ] {
        eprintln!("reboots: {reboots}, then {theirs:?}");
        let (world, ours) = World::with_idle_slice();
        match reboots {
            true => world.reboot(),
            false => world.admin_destroys(0, ours.gi),
        }
        let theirs = theirs.map(|(profile, start)| world.admin_leaves(0, profile, start));
        world.create("b");
        assert_ne!(world.uuid_in_bundle("b"), theirs);
        world.nothing_lost_nothing_given_twice().unwrap();
        assert_eq!(world.states(), ["ready"]);
        world.tidy_up(&["b"]);
    }
}

/// A disk on which nothing can be written any more keeps no slice back.
#[test]
fn destroys_unkept_slices() {
    let world = World::small();
    world.comes_and_goes("a");
    world.as_if_nothing_had_been().unwrap();
    // A slice that was half made is no slice.
    world.configure(KEPT);
    let call = "nvmlGpuInstanceCreateComputeInstance";
    world.fault(call, 1, None, Outcome::Return(4));
    world.refuses("b", "");
    world.no_faults();
    world.as_if_nothing_had_been().unwrap();
}
