//! Reboots, GPUs that go, and administrators with nvidia-smi between any two steps: never is
//! destroyed what somebody else made.

mod earlier_boot;

use runmig_lease::process;
use runmig_lease::store::{Lease, Store};
use testkit::faults::numbered;
use testkit::faults::strace::Call;
use testkit::prelude::*;

const ID: &str = "victim";

/// Failure: a lease changes after a collector's look at its container, so that the container may live
#[test]
fn collector_keeps_changed_lease() {
    let world = World::with_whole_gpus();
    for (key, value) in [("runmig.dev/gpu", "1"), ("runmig.dev/share", "1/2")] {
        world.create_saying(ID, &[(key, value)]);
        world.abandon(ID);
        let boot = process::boot_id(&world.machine()).unwrap();
        let store = Store::existing(&world.state(), Duration::from_secs(10))
            .unwrap()
            .unwrap();
        let store = store.at_boot(&boot);
        let lease = store.list().unwrap().held().next().unwrap().lease.clone();
        let ledger = store.lock("test").unwrap();
        let gc = going(&mut world.migctl(&["gc"]));
        gc.waits_for(&world.state().join("ledger.lock"));
        let now_lives = ledger.update_lease(&lease, |lease| lease.init = Some(process::current()));
        now_lives.unwrap();
        drop(ledger);
        gc.end().ok().says("its record changes");
        assert_eq!(world.lease_id(ID), lease.id.to_string());
        world.gc().ok();
        assert_eq!(world.leases().len(), 1);
        let dead = |lease: &mut Lease| lease.init = None;
        { store.lock("test").unwrap() }
            .update_lease(&lease, dead)
            .unwrap();
        world.gc().ok();
        world.nobody_is_left();
    }
}

type Begin = fn(&World) -> Call;
type Admin = fn(&World);

/// Takes all that is free.
fn takes_the_room(world: &World) {
    for start in 0..world.slots {
        if world.instances().iter().all(|i| i.start != start) {
            world.admin_creates(0, world.profile, start, true);
        }
    }
}

/// Takes away what is there and puts something else in the same place, under the same id.
fn replaces_everything(world: &World) {
    for instance in world.instances() {
        world.admin_destroys(0, instance.gi);
    }
    for start in 0..world.slots {
        let profile = if start == 3 {
            "1g.6gb+me"
        } else {
            world.profile
        };
        if start == 3 || world.uuid_in_bundle(ID).is_none() {
            world.admin_creates(0, profile, start, true);
        }
    }
}

/// Between any two steps: the program is killed there, the administrator acts, and then whoever comes
/// next puts things right.
fn between_any_two_steps(name: &str, begin: Begin, admin: Admin) {
    let world = World::small();
    let begin = |world: &World| {
        let call = begin(world);
        world.forget_geometry();
        call
    };
    let call = begin(&world);
    let calls = world.driver_calls(|| drop(settled(&call)));
    tidy_up(&world, &[]);
    let mut tried = 0;
    for (call, nth) in numbered(&calls) {
        for moment in [Moment::Before, Moment::After] {
            let changes = call.contains("Create") || call.contains("Destroy");
            if moment == Moment::After && !changes {
                continue;
            }
            let at = format!("{name}: {moment:?} {call} (the {nth}th)");
            let running = begin(&world);
            world.fault(call, nth, Some(nth), Outcome::Kill(moment));
            settled(&running);
            world.no_faults();
            let ours: Vec<u64> = world.instances().iter().map(|i| i.generation).collect();
            admin(&world);
            let mut theirs = world.instances();
            theirs.retain(|i| !ours.contains(&i.generation));
            world.gc().ok();
            assert_eq!(world.instances(), theirs, "{at}");
            let leases = world.leases();
            assert!(leases.is_empty(), "{at}: {leases:?}");
            tidy_up(&world, &theirs);
            tried += 1;
        }
    }
    let told = format!("{name}: an administrator acted at {tried} points");
    let _ = writeln!(io::stderr(), "moving world: {told}");
}

fn tidy_up(world: &World, theirs: &[testkit::faults::machine::Instance]) {
    for instance in theirs {
        world.admin_destroys(0, instance.gi);
    }
    if world.living_init(ID).is_some() {
        world.delete(ID);
    }
    world.nobody_is_left();
}

fn create(world: &World) -> Call {
    world.create_command(ID).into()
}

fn hook(world: &World) -> Call {
    let lease = world.abandoned(ID);
    world.hook(ID, &lease)
}

testkit::tests! {
    /// Failure: an administrator takes the room between any two steps
    create_survives_taken_room: between_any_two_steps("create, room taken", create, takes_the_room);
    hook_survives_taken_room: between_any_two_steps("poststop, room taken", hook, takes_the_room);
    create_survives_replaced_instances: between_any_two_steps("create, replaced", create, replaces_everything);
    hook_survives_replaced_instances: between_any_two_steps("poststop, replaced", hook, replaces_everything);
}
