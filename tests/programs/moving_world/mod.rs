//! Reboots, GPUs that go, and administrators with nvidia-smi between any two steps: never is
//! destroyed what somebody else made.

mod earlier_boot;

use runmig_lease::process;
use runmig_lease::store::{Instance, Lease, Resource, Store};
use testkit::faults::numbered;
use testkit::faults::strace::Call;
use testkit::prelude::*;

const ID: &str = "victim";
/// NVML_ERROR_UNKNOWN.
const UNKNOWN: u32 = 999;

/// Failure: a reboot
#[test]
fn reboot_makes_instance_another() {
    let world = World::small();
    let lease = world.abandoned(ID);
    let ours = world.the_instance();
    world.reboot();
    let gi = world.admin_creates(0, world.profile, ours.start, true);
    let theirs = world.the_instance();
    assert_eq!((theirs.gi, &theirs.uuids), (ours.gi, &ours.uuids));
    settled(&world.hook(ID, &lease));
    world.gc().ok();
    assert_eq!(world.instances(), [theirs]);
    assert!(world.leases().is_empty());
    world.create(ID);
    assert_eq!(world.instances().len(), 2);
    world.delete(ID);
    world.admin_destroys(0, gi);
    world.as_if_nothing_had_been().unwrap();
}

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

/// The driver has destroyed the instance of a failed create, and an administrator's at the place has the same id.
/// Failure: the driver reports an error of a destroy that it did
#[test]
fn spares_instance_after_denied_destroy() {
    // Insufficient memory, in use, unknown.
    for code in [20, 19, UNKNOWN] {
        let world = World::small();
        world.create(ID);
        let place = world.the_instance();
        world.delete(ID);
        let fails = Outcome::Return(UNKNOWN);
        world.fault("nvmlGpuInstanceCreateComputeInstance", 1, None, fails);
        let denies = Outcome::ReturnAfter(code);
        world.fault("nvmlGpuInstanceDestroy", 1, None, denies);
        said(&mut world.create_command(ID)).refused();
        assert_eq!(world.instances(), []);
        world.no_faults();
        world.admin_leaves(0, world.profile, place.start);
        assert_eq!(world.the_instance().gi, place.gi);
        world.gc().ok();
        assert_eq!(world.lost_of_theirs(), None, "{code}");
        assert!(world.leases().is_empty());
        world.as_if_nothing_had_been().unwrap();
    }
}

/// Failure: a GPU falls off the bus
#[test]
fn lost_gpu_keeps_its_leases() {
    let world = World::small();
    world.abandoned(ID);
    world.lose(0, true);
    world.gc().exits(1).says("GPU is lost (NVML 15)");
    assert_eq!(world.lease_of(ID)["state"], "quarantined");
    world.refuses("other", "GPU");
    world.lose(0, false);
    world.nobody_is_left();
}

/// One call that fails hides neither its GPU nor the other.
/// Failure: a GPU does not tell its number of free instances
#[test]
fn shows_gpu_whose_capacity_fails() {
    let world = World::of(SMALL, 2);
    let capacity = "nvmlDeviceGetGpuInstanceRemainingCapacity";
    let show = |arguments: &[&str]| {
        world.fault(capacity, 2, Some(2), Outcome::Return(UNKNOWN));
        let shown = world.ctl(arguments).exits(1);
        world.no_faults();
        shown.warns("on GPU 0 (GPU-").warns("(NVML 999)");
        shown
    };
    show(&["gpus"]).says("?/").says("GPU 1: ");
    let shown = show(&["gpus", "-o", "json"]);
    let gpus = shown.json();
    let (failed, whole) = (&gpus["items"][0], &gpus["items"][1]);
    let error = failed["error"].as_str().unwrap();
    assert_eq!(shown.stderr, format!("migctl: {error}\n"));
    let unknown = |gpu: &Value| {
        let profiles = gpu["profiles"].as_array().unwrap();
        let unknown = profiles.iter().filter(|p| p["instancesFree"].is_null());
        unknown.count()
    };
    assert_eq!((unknown(failed), unknown(whole)), (1, 0));
    assert_eq!(whole["error"], Value::Null);
}

/// Failure: an administrator switches MIG off or resets a GPU
#[test]
fn mig_is_switched_off_under_us() {
    let world = World::small();
    let lease = world.abandoned(ID);
    world.switch_mig_off(0);
    settled(&world.hook(ID, &lease));
    world.as_if_nothing_had_been().unwrap();
    world.refuses("other", "");
    world.as_if_nothing_had_been().unwrap();
}

/// Its container has lost what it had and is not told; what it had room for stays its own.
/// Failure: an administrator switches MIG off or resets a GPU, under a living container
#[test]
fn survives_reset_under_container() {
    let world = World::small();
    let ids = world.full();
    world.change(|machine, _| machine.gpus[0].gpu_instances.clear());
    world.gc().ok();
    assert_eq!(world.states(), ["ready"; 4]);
    world.refuses("other", "cannot allocate 1g.6gb: ");
    world.ends(&ids);
    world.create("other");
    world.ends(&["other"]);
}

/// Failure: an administrator destroys an instance of runmig and creates another there
#[test]
fn tells_reused_gpu_instance_id_apart() {
    let world = World::small();
    let lease = world.abandoned(ID);
    let ours = world.the_instance();
    world.admin_destroys(0, ours.gi);
    world.admin_creates(0, "1g.6gb+me", ours.start, true);
    let theirs = world.the_instance();
    assert_eq!((theirs.gi, &theirs.uuids), (ours.gi, &ours.uuids));
    settled(&world.hook(ID, &lease));
    assert_eq!(world.instances(), [theirs]);
    assert!(world.leases().is_empty());
}

/// Profile, place and ids are those of the record, and only the MIG UUID is another.
#[test]
fn spares_device_of_another_uuid() {
    let world = World::small();
    let lease = world.abandoned(ID);
    let theirs = world.the_instance();
    let store = Store::open(&world.state(), Duration::from_secs(10)).unwrap();
    let listing = store.list().unwrap();
    let ours = listing.held().next().unwrap().instance.clone();
    let ledger = store.lock("test").unwrap();
    let change = |instance: &mut Instance| match &mut instance.resource {
        Resource::Mig(slice) => slice.mig_uuid = Some("MIG-of-ours".to_owned()),
        other => panic!("{other}"),
    };
    ledger.update_instance(&ours, change).unwrap();
    drop(ledger);
    settled(&world.hook(ID, &lease));
    assert_eq!(world.instances(), [theirs]);
    assert!(world.leases().is_empty());
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
