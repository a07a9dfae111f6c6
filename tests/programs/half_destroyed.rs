//! Slices that cannot be destroyed, or only by half: tried again, then quarantined, and in nobody's
//! way.

use std::time::SystemTime;
use testkit::prelude::*;

const ID: &str = "victim";

/// A slice in use, whose container has gone without anybody releasing it, and the hook that is to.
fn in_use() -> (World, strace::Call, nvml_sim::holders::Hold) {
    let world = World::small();
    let lease = world.abandoned(ID);
    let held = world.hold(0, world.the_instance().gi, Some(0));
    nvml_sim::trace::on(&world.machine()).unwrap();
    let hook = world.hook(ID, &lease);
    (world, hook, held)
}

/// Takes all room but that of the slice.
fn takes_the_rest(world: &World) {
    (1..world.slots).for_each(|n| drop(world.create(&format!("other-{n}"))));
}

fn next_attempt(lease: &Value) -> SystemTime {
    humantime::parse_rfc3339(lease["nextAttempt"].as_str().unwrap()).unwrap()
}

/// Failure: the compute instance is gone, the GPU instance in use
#[test]
fn keeps_instance_without_compute_instance() {
    let world = World::small();
    let lease = world.abandoned(ID);
    let gi = world.the_instance().gi;
    let held = world.hold(0, gi, None);
    settled(&world.hook(ID, &lease)).ok();

    let half = world.the_instance();
    assert!(half.uuids.is_empty(), "{half:?}");
    world.nothing_lost_nothing_given_twice().unwrap();
    let lease = world.lease_of(ID);
    assert_eq!(lease["state"], "quarantined", "{lease}");
    let holder = lease["heldBy"][0].as_str().unwrap();
    let pid = holder.split(' ').next().unwrap();
    assert_eq!(pid, std::process::id().to_string(), "{lease}");
    let table = world.ctl(&["list"]).ok();
    table.says("quarantined").warns(holder);

    // It counts as taken.
    takes_the_rest(&world);
    world.refuses("one-too-many", "memory slices are free");

    drop(held);
    world.gc().ok();
    world.create("one-too-many");
    world.nothing_lost_nothing_given_twice().unwrap();
}

/// An instance that seems to go while it is listed is looked for again: a place is free only if the
/// driver says so.
#[test]
fn vanishing_instances_free_no_place() {
    let world = World::small();
    world.create(ID);
    let call = "nvmlGpuInstanceGetInfo";
    let gone = Outcome::Return(6);
    let look = || world.items(&["gpus"]).remove(0);
    let seen = look();
    assert_eq!(seen["instances"].as_array().unwrap().len(), 1, "{seen}");
    world.fault(call, 1, Some(1), gone);
    assert_eq!(look(), seen);
    world.no_faults();
    world.fault(call, 1, None, gone);
    world.refuses("other", "they keep going away");
    world.no_faults();
    world.nothing_lost_nothing_given_twice().unwrap();
    world.delete(ID);
}

/// Failure: the driver answers a destroy with success and goes on listing the instance
#[test]
fn believes_lists_of_driver_alone() {
    let world = World::small();
    let lease = world.abandoned(ID);
    let success = Outcome::Return(0);
    world.fault("nvmlGpuInstanceDestroy", 1, None, success);
    settled(&world.hook(ID, &lease));
    let lease = world.lease_of(ID);
    assert_eq!(lease["state"], "quarantined", "{lease}");
    has(
        &lease.to_string(),
        "is still there after the driver destroyed it",
    );
    world.no_faults();
    world.nobody_is_left();
}

/// A create or a Prepare whose compute instance the driver refuses is killed once it has destroyed its GPU instance. An
/// instance of an administrator's at the place has the same ids. The promise of a claim stays.
/// Failure: a kill between the end of a half-made slice and the end of its record
#[test]
fn spares_instance_at_place_of_half_made_slice() {
    for is_claim in [false, true] {
        eprintln!("of a claim: {is_claim}");
        let world = World::small();
        let ci = "nvmlGpuInstanceCreateComputeInstance";
        world.fault(ci, 1, None, Outcome::Return(19));
        let mut makes = match is_claim {
            false => world.create_command(ID),
            true => world.claims("prepare", "a"),
        };
        world.kills("nvmlGpuInstanceDestroy", Moment::After, &mut makes);
        assert!(world.instances().is_empty());
        let slice = &world.leases()[0];
        let start = slice["migPlacement"]["start"].as_u64().unwrap() as u32;
        let gi = world.admin_creates(0, "1g.6gb", start, true);
        assert_eq!(slice["gpuInstanceID"], gi);
        world.gc().ok();
        assert_eq!(world.the_instance().gi, gi);
        let left: &[&str] = if is_claim { &["promised"] } else { &[] };
        assert_eq!(world.states(), left);
    }
}

/// Failure: an instance to destroy is in use for a moment
#[test]
fn retries_destroy_while_in_use() {
    let (world, hook, held) = in_use();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| settled(&hook));
        until("a refusal", || world.refusals() > 1);
        drop(held);
        ended.join().unwrap();
    });
    world.as_if_nothing_had_been().unwrap();
}

/// Failure: an instance to destroy is in use for ever
#[test]
fn retries_destroy_with_growing_gaps() {
    let (world, _, held) = in_use();
    let mut last = 0;
    for attempt in 1..=4 {
        world.gc().exits(1);
        let lease = world.lease_of(ID);
        assert_eq!(lease["attempts"], attempt, "{lease}");
        let gap = next_attempt(&lease).duration_since(SystemTime::now());
        let gap = gap.unwrap_or_default();
        assert!(gap.as_secs() >= last, "{attempt}: {gap:?} after {last} s");
        assert!(gap.as_secs() < 1 << attempt, "{attempt}: {gap:?}");
        last = (1 << attempt) - 1;
        // The records' whole seconds and a slow machine shorten the gaps after the first.
        last = last.saturating_sub(2);
    }
    // It is not due, so a create that finds no room does not try it.
    takes_the_rest(&world);
    let calls = world.driver_calls(|| drop(world.refuses("one-too-many", "")));
    lacks(&calls.join(" "), "Destroy");
    // By hand it is tried at once.
    drop(held);
    world.ctl(&["release", ID]).ok();
    world.create("one-too-many");
}

#[test]
fn create_retries_due_destroys() {
    let (world, hook, held) = in_use();
    settled(&hook);
    takes_the_rest(&world);
    drop(held);
    until("the next attempt is due", || {
        next_attempt(&world.lease_of(ID)) <= SystemTime::now()
    });
    world.create("one-more");
    world.nothing_lost_nothing_given_twice().unwrap();
}

/// Failure: other creates need the same GPU meanwhile
#[test]
fn waits_for_no_instance_in_use() {
    let (world, hook, held) = in_use();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| settled(&hook));
        until("a refusal", || world.refusals() > 0);
        world.create("other");
        let before = world.refusals();
        ended.join().unwrap();
        // The hook went on trying after the create on the same GPU was done.
        assert!(world.refusals() > before, "the create waited for the hook");
    });
    drop(held);
    // The successor of the same name gets another slice.
    world.create(ID);
    world.nothing_lost_nothing_given_twice().unwrap();
}
