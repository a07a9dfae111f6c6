//! Obstacles that are on their way out: Prepare waits for them, since an error costs the pod a minute.

use super::*;
use std::sync::mpsc;

const LONG: Duration = Duration::from_secs(60);

/// The old pod was force-deleted, and its container computes on.
#[test]
fn waits_for_slice_in_use() {
    let world = World::small();
    let at = place(&world, "4g.24gb", 0, 4);
    prepare(&world, "old", &at).unwrap();
    let hold = world.hold(0, world.the_instance().gi, Some(0));
    has(&unprepare(&world, "old").unwrap_err().line(), "in use");
    let line = prepare(&world, "new", &at).unwrap_err().line();
    has(&line, "claim team-a/old-gpu");
    has(&line, "in use by another client");
    ends(&world, &at, || drop(hold));
}

/// The scheduler knows that the old claim is gone before the kubelet says so.
/// Failure: the earlier holder of the place ends: a claim that is not unprepared yet, a slice in use, a quarantined one
#[test]
fn waits_for_end_of_old_claim() {
    let world = World::small();
    let at = place(&world, "4g.24gb", 0, 4);
    prepare(&world, "old", &at).unwrap();
    assert!(prepare(&world, "new", &at).is_err());
    ends(&world, &at, || unprepare(&world, "old").unwrap());
}

/// Prepares the claim `new` while the obstacle goes.
pub fn ends(world: &World, at: &ClaimPlace, go: impl FnOnce()) {
    let (begun, is_begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let new = scope.spawn(move || {
            with(world, |leases| {
                begun.send(()).unwrap();
                leases.prepare(claim("new"), at, LONG, &|_| ()).unwrap()
            })
        });
        is_begun.recv().unwrap();
        go();
        new.join().unwrap();
    });
    assert_eq!(the_lease(world)["claim"]["uid"], "new");
    world.the_instance();
}

/// A local slice on its way out counts too.
#[test]
fn releases_what_a_container_left() {
    let world = World::small();
    world.create_asking("a", "4g.24gb");
    let hold = world.hold(0, world.the_instance().gi, Some(0));
    world.delete("a");
    assert_eq!(the_lease(&world)["state"], "quarantined");
    drop(hold);
    let at = place(&world, "4g.24gb", 0, 4);
    prepare(&world, "new", &at).unwrap();
    assert_eq!(the_lease(&world)["claim"]["uid"], "new");
}

/// Another operation has the lock of the GPU for longer than a lock is waited for.
/// Failure: another operation has the lock of the GPU, or a process has the half-made slice of a killed Prepare open
#[test]
fn waits_for_lock_of_gpu() {
    let world = World::small();
    world.configure("lock_timeout = \"50ms\"");
    let at = place(&world, "1g.6gb", 0, 1);
    promise(&world, "new", &at).unwrap();
    let lock = world.lock_gpu(0);
    let line = prepare(&world, "new", &at).unwrap_err().line();
    has(&line, ".lock is held by");
    // The wait for a lock goes on in a thread when its caller gives up, so each is seen. A try waits twice: to make the
    // slice, and to undo that. The first try was above.
    let tries = || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let inode = format!(":{} ", lock.metadata().unwrap().ino());
        let waits = |line: &&str| line.contains(" -> ") && line.contains(&inode);
        locks.lines().filter(waits).count()
    };
    ends(&world, &at, || {
        until("it has tried twice", || tries() > 4);
        File::unlock(&lock).unwrap();
    });
}

/// A monitoring agent has the half-made slice open that a killed Prepare left.
#[test]
fn waits_for_half_made_slice() {
    let world = World::small();
    let at = place(&world, "1g.6gb", 0, 1);
    let ci = "nvmlGpuInstanceCreateComputeInstance";
    world.kills(ci, Moment::After, &mut world.claims("prepare", "new"));
    let hold = world.hold(0, world.the_instance().gi, Some(0));
    let line = prepare(&world, "new", &at).unwrap_err().line();
    has(&line, "in use by another client");
    nvml_sim::trace::on(&world.machine()).unwrap();
    ends(&world, &at, || {
        until("it was refused twice", || world.refusals() > 1);
        drop(hold);
    });
}
