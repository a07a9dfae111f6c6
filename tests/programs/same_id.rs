//! Two creates of one id at once, in two bundles: one container, and nothing of the other create.

use fs2::FileExt;
use testkit::prelude::*;

const ID: &str = "same";
type Asks = [(&'static str, &'static str)];

/// A world whose ledger is there, and has whole GPUs too.
fn world() -> World {
    let world = World::with_whole_gpus();
    world.configure("sharing.enforcement = [\"none\"]\npolicy.slices_per_container = 2");
    world.comes_and_goes("before");
    world
}

fn creating(world: &World, bundle: &str, asks: &Asks) -> Going {
    let bundle = world.bundle_saying(bundle, asks);
    let mut create = world.runmig(&["create", "--bundle"]);
    going(create.arg(bundle).arg(ID).stdin(Stdio::null()))
}

/// Starts two creates, which wait to choose.
fn both(world: &World, asks: &Asks) -> (File, Going, Going) {
    let path = world.state().join("plan.lock");
    let plan = File::open(&path).unwrap();
    plan.lock_exclusive().unwrap();
    let one = creating(world, "one", asks);
    one.waits_for(&path);
    let two = creating(world, "two", asks);
    two.waits_for(&path);
    (plan, one, two)
}

#[track_caller]
fn is_untouched(world: &World, bundle: &str) {
    assert!(!world.bundle_is_edited(bundle));
    let dir = world.path("bundles").join(bundle);
    assert!(!dir.join("config.json.runmig").exists());
}

#[track_caller]
fn one_of_two_lives(count: usize, asks: &Asks) {
    let world = world();
    let (plan, one, two) = both(&world, asks);
    drop(plan);
    let (one, two) = (one.end(), two.end());
    let (lost, said) = match one.status.success() {
        true => ("two", two),
        false => ("one", one),
    };
    has(&said.refused(), &format!("container {ID} exists already"));
    is_untouched(&world, lost);
    let leases = world.leases();
    assert_eq!(leases.len(), count, "{leases:?}");
    assert!(leases.iter().all(|lease| lease["state"] == "ready"));
    world.gc().ok();
    assert_eq!(world.leases(), leases);
    world.nothing_lost_nothing_given_twice().unwrap();
    world.all_go(&[ID]);
}

/// Failure: two creates of one id run at once
#[test]
fn one_of_two_slices_lives() {
    one_of_two_lives(1, &[("runmig.dev/slice", "1g.6gb")]);
    one_of_two_lives(2, &[("runmig.dev/slice", "1g.6gb*2")]);
}

testkit::tests! {
    one_of_two_shares_lives: one_of_two_lives(1, &[("runmig.dev/share", "4Gi")]);
    one_of_two_whole_gpus_lives: one_of_two_lives(1, &[("runmig.dev/gpu", "1")]);
}

/// The second has looked for an earlier lease, and meets that of the first only when it chooses.
/// Failure: a kill of the first of two creates of one id
#[test]
fn second_replaces_killed_first() {
    let world = world();
    let (plan, one, two) = both(&world, &[("runmig.dev/slice", "1g.6gb")]);
    two.stop();
    world.takes("nvmlGpuInstanceCreateComputeInstance", 600_000);
    drop(plan);
    until("the first makes its slice", || world.instances().len() == 1);
    one.kill();
    world.no_faults();
    two.signal(Signal::SIGCONT);
    two.end().ok();
    is_untouched(&world, "one");
    world.lease_of(ID);
    assert_eq!(world.instances().len(), 1);
    world.all_go(&[ID]);
}

/// An engine without runmig makes a container of the id while runmig makes the slice.
#[test]
fn failed_create_takes_its_slice_with_it() {
    for slice in ["1g.6gb", "2g.12gb"] {
        let world = world();
        world.takes("nvmlGpuInstanceCreateComputeInstance", 1500);
        let create = creating(&world, "one", &[("runmig.dev/slice", slice)]);
        until("it makes its slice", || world.instances().len() == 1);
        let plain = world.bundle_saying("plain", &[]);
        let mut bare = world.bare(&["create", "--bundle"]);
        said(bare.arg(plain).arg(ID)).ok();
        create.end().exits(1).warns("container same");
        is_untouched(&world, "one");
        assert_eq!(world.leases(), Vec::<Value>::new());
        said(&mut world.bare(&["delete", "--force", ID])).ok();
        world.as_if_nothing_had_been().unwrap();
    }
}
