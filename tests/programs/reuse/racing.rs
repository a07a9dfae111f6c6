//! Two who are at the same slice at once, stopped where they meet.

use crate::reuse::{create_in, hold, open};
use testkit::prelude::*;

/// A hook has marked the lease as *releasing* and is about to keep the slice; what is releasing is
/// anybody's to destroy, and somebody does.
#[test]
fn never_keeps_instance_being_destroyed() {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    world.create("a");
    let lease = world.abandon("a");
    let (bundle, log) = (world.path("bundles").join("a"), world.path("log"));
    // Between the two it puts config.json back, which is its one rename in the bundle.
    let within = ["-o", log.to_str().unwrap(), "-P", bundle.to_str().unwrap()];
    let stops = ["-e", "inject=renameat:signal=STOP:when=1"];
    let hook = world.hook("a", &lease);
    let traced = strace::traced(&hook, &[&within[..], &stops].concat()).going();
    until("the hook stands still", || {
        let log = fs::read_to_string(&log);
        log.is_ok_and(|log| log.contains("--- stopped by SIGSTOP ---"))
    });
    assert_eq!(world.lease_of("a")["state"], "releasing");

    world.takes("nvmlComputeInstanceDestroy", 1000);
    let gc = going(&mut world.migctl(&["gc"]));
    until("one of them has the GPU", || {
        let lock = File::open(world.gpu_lock(0));
        lock.is_ok_and(|lock| lock.try_lock_shared().is_err())
    });
    strace::go_on(&traced);
    traced.end().ok();
    gc.end().ok();
    world.no_faults();
    let leases = world.leases();
    assert_eq!(leases.len(), world.instances().len(), "{leases:#?}");
    world.tidy_up(&[]);
}

fn has_lease(world: &World, id: &str) -> bool {
    !world.leases_of(id).is_empty()
}

/// The first of a pod was handed an idle slice and finds that somebody uses it: until it has looked,
/// the second does not have it either.
#[test]
fn never_shares_unvalidated_slice() {
    let (world, idle) = World::with_idle_slice();
    let held = hold(&world, idle.gi);
    world.takes("nvmlDeviceGetComputeRunningProcesses_v3", 500);
    for id in ["a", "b"] {
        world.bundle_in_pod(id, world.profile, "p");
    }
    let first = world.creating("a");
    until("it is handed out", || has_lease(&world, "a"));
    world.creating("b").end().ok();
    first.end().ok();
    world.no_faults();
    for id in ["a", "b"] {
        assert_ne!(world.lease_of(id)["gpuInstanceID"], idle.gi, "{id}");
    }
    world.nothing_lost_nothing_given_twice().unwrap();
    drop(held);
    world.tidy_up(&["a", "b"]);
}

/// The driver is asked GPU by GPU: what is made on the first while the second is asked is there.
#[test]
fn shares_slice_created_meanwhile() {
    let world = World::of(SMALL, 2);
    for id in ["a", "b"] {
        world.bundle_in_pod(id, world.profile, "p");
    }
    world.takes("nvmlDeviceGetMigMode", 400);
    world.takes("nvmlDeviceCreateGpuInstanceWithPlacement", 600);
    let first = world.creating("a");
    until("it has begun", || has_lease(&world, "a"));
    world.creating("b").end().ok();
    first.end().ok();
    world.no_faults();
    assert_eq!(world.instances().len(), 1);
    world.ends(&["a", "b"]);
}

/// One that was stopped holds its pod up no longer than a lock would.
#[test]
fn bounds_wait_for_sleeping_creator() {
    let world = World::small();
    world.configure("lock_timeout = \"1s\"");
    create_in(&world, "other", "z").ok();
    world.delete("z");
    let gpu = world.lock_gpu(0);
    world.bundle_in_pod("a", world.profile, "p");
    let first = world.creating("a");
    until("it is on record", || has_lease(&world, "a"));
    first.waits_for(&world.gpu_lock(0));
    first.stop();
    drop(gpu);
    create_in(&world, "p", "b")
        .refused_for("container a of the same pod makes the slice for all of them (process ");
    first.signal(Signal::SIGCONT);
    first.end();
    world.all_go(&["a"]);
}

/// Each try of one that waits is a lease that comes and goes, and wakes the other.
#[test]
fn failed_tries_let_waiters_sleep() {
    let world = World::small();
    world.configure("adopt = true");
    for (profile, start) in [(world.profile, 0), ("2g.12gb", 2)] {
        world.admin_leaves(0, profile, start);
    }
    let theirs = world.instances();
    let open: Vec<File> = theirs.iter().map(|i| open(&world, i.gi)).collect();
    world.create("full");
    let calls = world.driver_calls(|| {
        let waiting = ["1g.6gb", "2g.12gb"].map(|slice| {
            let wait = [("runmig.dev/slice", slice), ("runmig.dev/wait", "2s")];
            world.bundle_saying(slice, &wait);
            world.creating(slice)
        });
        waiting
            .into_iter()
            .for_each(|one| drop(one.end().refused()));
    });
    let looks = calls.iter().filter(|c| c.contains("GetCount")).count();
    assert!(looks < 60, "{looks}");
    drop(open);
    world.delete("full");
    world.comes_and_goes("1g.6gb");
    world.comes_and_goes("2g.12gb");
    world.as_if_nothing_had_been().unwrap();
}

/// The process that kept it, collecting for others, waits on; that is no container that lives.
#[test]
fn releases_idle_slice_by_hand() {
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    world.create("lives");
    world.create("dies");
    world.abandon("dies");
    let wait = [("runmig.dev/slice", "4g.24gb"), ("runmig.dev/wait", "10m")];
    world.bundle_saying("waits", &wait);
    let waits = world.creating("waits");
    let idle = || world.leases().into_iter().find(|l| l["state"] == "idle");
    until("it is idle", || idle().is_some());
    let idle = idle().unwrap();
    world.tells(&["release", idle["id"].as_str().unwrap()]);
    world.delete("lives");
    waits.end().ok();
    world.tidy_up(&["waits"]);
}

/// An administrator's instance stays when its container goes, so no waiting request could have its
/// place.
#[test]
fn waits_for_no_adopted_instance() {
    let world = World::of(BIG, 1);
    world.configure("adopt = true");
    world.admin_leaves(0, "2g.20gb", 0);
    world.create_asking("adopts", "2g.20gb");
    assert_eq!(world.lease_of("adopts")["adopted"], true);
    let waits = world.waits_asking("waits", "7g.80gb");
    world.create("passes");
    waits.signal(Signal::SIGTERM);
    waits.end();
    let _ = fs::remove_dir_all(world.path("bundles").join("waits"));
    world.all_go(&["adopts", "passes"]);
}

/// The users of an existing slice cannot be found out: a new one is made.
#[test]
fn leaves_unreadable_instance() {
    for adopts in [true, false] {
        let world = World::small();
        world.configure(&format!("keep_idle = \"5m\"\nadopt = {adopts}"));
        match adopts {
            true => drop(world.admin_leaves(0, world.profile, 0)),
            false => world.comes_and_goes("before"),
        }
        let there = world.the_instance();
        let call = "nvmlDeviceGetComputeRunningProcesses_v3";
        world.fault(call, 1, None, Outcome::Return(999));
        world.create("a");
        world.no_faults();
        let mut all = world.instances().into_iter();
        let made = all.find(|i| i.generation != there.generation);
        assert_eq!(world.lease_of("a")["gpuInstanceID"], made.unwrap().gi);
        world.tidy_up(&["a"]);
    }
}
