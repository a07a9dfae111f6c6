//! Claims in the ledger: promises, their slices, and everybody else who wants the place. Most of it is in sessions.

mod containers;
mod orders;
mod real;

use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::store::{Claim, ClaimPod, Held, Store};
use runmig_lease::{ClaimPlace, Leases, Patience};
use testkit::claims::claim;
use testkit::prelude::*;

/// Returns a place on the first GPU.
fn place(world: &World, profile: &str, start: u32, size: u32) -> ClaimPlace {
    testkit::claims::place(&world.engine().gpus[0].uuid, profile, start, size)
}

/// Calls the ledger as `runmig-dra` does.
fn with<T>(world: &World, call: impl FnOnce(&Leases<'_>) -> T) -> T {
    testkit::claims::with(&world.path("config.toml"), call)
}

fn promise(world: &World, uid: &str, at: &ClaimPlace) -> Result<Held> {
    with(world, |leases| leases.promise(claim(uid), at, &|_| ()))
}

fn prepare(world: &World, uid: &str, at: &ClaimPlace) -> Result<Held> {
    with(world, |leases| {
        leases.prepare(claim(uid), at, Duration::ZERO, &|_| ())
    })
}

fn unprepare(world: &World, uid: &str) -> Result<()> {
    with(world, |leases| leases.unprepare(uid, Patience::NONE))
}

/// Returns the only lease, as `migctl list -o json` shows it.
#[track_caller]
fn the_lease(world: &World) -> serde_json::Value {
    let leases = world.leases();
    assert_eq!(leases.len(), 1, "{leases:#?}");
    leases[0].clone()
}

#[track_caller]
fn nothing_is_left(world: &World) {
    assert_eq!(world.leases(), Vec::<Value>::new());
    assert!(world.instances().is_empty(), "{:?}", world.instances());
}

/// Returns a world with the slices of these claims, at the places of the first GPU in this order.
fn prepared(claims: &[&str]) -> World {
    let world = World::small();
    for (uid, start) in claims.iter().zip(0..) {
        prepare(&world, uid, &place(&world, "1g.6gb", start, 1)).unwrap();
    }
    world
}

/// Promises claim `a` to the pods `train` and this one.
fn promise_to_both(world: &World, pod: &str, at: &ClaimPlace) {
    let mut claim = claim("a");
    claim.pods.push(ClaimPod {
        uid: format!("{pod}-uid"),
        name: pod.to_owned(),
    });
    with(world, |leases| leases.promise(claim, at, &|_| ())).unwrap();
}

/// Ends a claim, which was all that there was.
#[track_caller]
fn ends_last(world: &World, uid: &str) {
    unprepare(world, uid).unwrap();
    nothing_is_left(world);
}

/// Failure: Prepare twice, or four times at once; Unprepare twice, or for an unknown claim
#[test]
fn prepare_makes_the_slice_once() {
    let world = World::small();
    let at = place(&world, "1g.6gb", 2, 1);
    promise(&world, "a", &at).unwrap();
    let first = prepare(&world, "a", &at).unwrap();
    let made = world.the_instance();
    assert_eq!((made.start, made.uuids.len()), (2, 1));
    let slice = first.instance.slice().unwrap();
    assert_eq!(slice.mig_uuid.as_deref(), Some(made.uuids[0].as_str()));
    let calls = world.driver_calls(|| {
        let again = prepare(&world, "a", &at).unwrap();
        assert_eq!(again.instance, first.instance);
    });
    assert!(!calls.iter().any(|c| c.contains("Create")), "{calls:?}");
    assert_eq!(the_lease(&world)["state"], "ready");

    ends_last(&world, "a");
    // The kubelet repeats itself, and knows of claims that this node never had.
    unprepare(&world, "a").unwrap();
    unprepare(&world, "unknown").unwrap();
}

#[test]
fn makes_slice_once_in_parallel() {
    let world = World::small();
    let at = place(&world, "1g.6gb", 0, 1);
    world.takes("nvmlDeviceCreateGpuInstanceWithPlacement", 200);
    let call = || {
        with(&world, |leases| {
            let patience = Duration::from_secs(30);
            leases.prepare(claim("a"), &at, patience, &|_| ()).unwrap()
        })
    };
    let made = std::thread::scope(|scope| {
        let calls = [(); 4].map(|()| scope.spawn(call));
        calls.map(|call| call.join().unwrap().instance)
    });
    assert!(made.iter().all(|instance| *instance == made[0]));
    world.the_instance();
}

/// Two devices of one claim have a lease each, and end together.
/// Failure: a claim ends that has several devices
#[test]
fn devices_of_a_claim_end_together() {
    let world = World::small();
    for (device, start) in [("one", 0), ("two", 3)] {
        let claim = Claim {
            device: device.to_owned(),
            ..claim("a")
        };
        let at = place(&world, "1g.6gb", start, 1);
        with(&world, |l| l.prepare(claim, &at, Duration::ZERO, &|_| ())).unwrap();
    }
    assert_eq!(world.instances().len(), 2);
    assert_eq!(with(&world, |l| l.claims()).unwrap().len(), 2);
    ends_last(&world, "a");
}

/// What Prepare returns is there: at another place, made anew, and idle before.
#[test]
fn prepare_returns_what_is_there() {
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    let at = place(&world, "1g.6gb", 0, 1);
    let made = |uid: &str| {
        let held = prepare(&world, uid, &at).unwrap();
        let (slice, there) = (held.instance.slice().unwrap(), world.the_instance());
        assert_eq!(slice.placement.start, there.start);
        assert_eq!(slice.mig_uuid.as_ref(), there.uuids.first());
        held.instance.id.clone()
    };
    let create = "nvmlDeviceCreateGpuInstanceWithPlacement";
    world.fault(create, 1, Some(1), Outcome::Return(23));
    let moved = made("a");
    world.admin_destroys(0, world.the_instance().gi);
    let anew = made("a");
    assert_ne!(anew, moved);
    unprepare(&world, "a").unwrap();
    assert_eq!(made("b"), anew);
}

/// The kubelet prepares a claim once, however many pods it is reserved for.
/// Failure: a further pod uses a claim that is prepared
#[test]
fn promise_names_later_pods() {
    let world = World::small();
    let at = place(&world, "1g.6gb", 0, 1);
    prepare(&world, "a", &at).unwrap();
    promise_to_both(&world, "second", &at);
    let lease = the_lease(&world);
    assert_eq!(lease["state"], "ready");
    assert_eq!(lease["claim"]["pods"][1]["name"], "second");
    has(&world.tells(&["list"]), "team-a/train and 1 more");
}

#[test]
fn refuses_while_driver_runs() {
    let world = prepared(&["a"]);
    let config = Config::read(&world.path("config.toml")).unwrap();
    let store = Store::open(&config.state_dir, config.lock_timeout).unwrap();
    let driver = store.try_lock_driver().unwrap().unwrap();
    let words = "cannot release the claims: runmig-dra runs on this node, process";
    let words = format!("{words} {}", std::process::id());
    world.ctl(&["release", "--claims"]).exits(1).warns(&words);
    assert_eq!(the_lease(&world)["state"], "ready");
    drop(driver);
    world.ctl(&["release", "--claims"]).ok();
    nothing_is_left(&world);
}
