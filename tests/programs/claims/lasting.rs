//! Only Kubernetes ends a claim's lease, and an operator by hand.

use super::*;

/// Failure: a collection, by a create too
#[test]
fn collection_keeps_claims() {
    let world = World::small();
    promise(&world, "promised", &place(&world, "1g.6gb", 3, 1)).unwrap();
    prepare(&world, "made", &place(&world, "1g.6gb", 0, 1)).unwrap();
    let said_of = world.tells(&["gc"]);
    for name in ["promised", "made"] {
        let why = format!("only Kubernetes withdraws claim team-a/{name}-gpu (pod team-a/train)");
        has(&said_of, &why);
    }
    // A create without room collects too.
    world.refuses_asking("whole", "4g.24gb", "4g.24gb");
    assert_eq!(world.leases().len(), 2);
    assert_eq!(world.the_instance().start, 0);
}

/// Failure: Kubernetes forgets a claim, and no Unprepare comes, and the driver does not run
#[test]
fn operator_releases_claim_by_hand() {
    let world = World::small();
    for (name, by) in [("a", "team-a/a-gpu"), ("b", "b")] {
        prepare(&world, name, &place(&world, "1g.6gb", 0, 1)).unwrap();
        let claim = format!("claim team-a/{name}-gpu");
        let told = world.ctl(&["release", by]).ok();
        told.says(&format!("{claim} (pod team-a/train)"));
        let warning = "migctl: warning: Kubernetes still has";
        told.warns(&format!(
            "{warning} {claim}, and pod team-a/train loses its slice"
        ));
        nothing_is_left(&world);
    }
}

/// A pod that uses it keeps the slice from an operator too.
#[test]
fn release_by_hand_spares_processes() {
    let world = prepared(&["a"]);
    let hold = world.hold(0, world.the_instance().gi, Some(0));
    world.ctl(&["release", "a"]).exits(1).warns("in use");
    assert_eq!(the_lease(&world)["state"], "quarantined");
    drop(hold);
    ends_last(&world, "a");
}

/// Failure: an administrator destroyed the instance of a claim
/// Failure: an administrator destroyed the compute instance of a claim alone
#[test]
fn prepare_replaces_instance_that_went() {
    for is_emptied in [false, true] {
        let world = World::small();
        let at = place(&world, "1g.6gb", 1, 1);
        let first = prepare(&world, "a", &at).unwrap();
        let gi = world.the_instance().gi;
        match is_emptied {
            true => {
                world.change(|m, holds| m.destroy_compute_instance(0, gi, 0, holds).unwrap());
                assert_eq!(world.the_instance().uuids, [""; 0]);
            }
            false => world.admin_destroys(0, gi),
        }
        let again = prepare(&world, "a", &at).unwrap();
        assert_ne!(again.instance.id, first.instance.id);
        assert_eq!(start(&again), 1);
        let uuid = again.instance.slice().unwrap().mig_uuid.clone();
        assert_eq!(uuid.as_ref(), world.the_instance().uuids.first());
        ends_last(&world, "a");
    }
}

/// Between promise and Prepare an administrator made something there.
/// Failure: an administrator made an instance at the place of a promise
#[test]
fn end_of_promise_spares_foreign_instance() {
    let world = World::small();
    for end in ["unprepare", "release"] {
        promise(&world, "a", &place(&world, "1g.6gb", 1, 1)).unwrap();
        let gi = world.admin_creates(0, "1g.6gb", 1, false);
        match end {
            "unprepare" => unprepare(&world, "a").unwrap(),
            _ => drop(world.ctl(&["release", "a"]).ok()),
        }
        assert_eq!(world.the_instance().gi, gi, "{end}");
        world.admin_destroys(0, gi);
    }
}

/// The next slice of the profile at that place is the one that the claim had.
/// Failure: a claim needs the place of an idle slice, or a slice of a claim becomes idle
#[test]
fn released_slice_is_kept_idle() {
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    let at = place(&world, "1g.6gb", 0, 1);
    let first = prepare(&world, "a", &at).unwrap();
    unprepare(&world, "a").unwrap();
    assert_eq!(the_lease(&world)["state"], "idle");
    let second = prepare(&world, "b", &at).unwrap();
    assert_eq!(second.instance.id, first.instance.id);
    unprepare(&world, "b").unwrap();
    // An idle slice is room for a claim of another profile too.
    let large = prepare(&world, "c", &place(&world, "4g.24gb", 0, 4)).unwrap();
    assert_eq!(large.instance.slice().unwrap().profile, "4g.24gb");
    world.the_instance();
}

/// A claim destroys idle slices whose time is over on its own GPU alone.
/// Failure: a claim comes beside idle slices whose time is over
#[test]
fn ends_idle_slices_of_its_gpu() {
    let world = World::of(testkit::faults::SMALL, 2);
    world.configure("keep_idle = \"5m\"");
    let on = |gpu: usize, start: u32| ClaimPlace {
        gpu: GpuUuid::new(world.engine().gpus[gpu].uuid.as_str()),
        ..place(&world, "1g.6gb", start, 1)
    };
    prepare(&world, "a", &on(1, 0)).unwrap();
    unprepare(&world, "a").unwrap();
    world.configure("keep_idle = \"20ms\"");
    let would = || world.tells(&["gc", "--dry-run"]);
    until("its time is over", || would().contains("would be released"));
    prepare(&world, "b", &on(0, 0)).unwrap();
    assert_eq!(world.instances().len(), 2);
    prepare(&world, "c", &on(1, 3)).unwrap();
    let there = world.instances().into_iter();
    let mut there: Vec<(u32, u32)> = there.map(|made| (made.gpu, made.start)).collect();
    there.sort();
    assert_eq!(there, [(0, 0), (1, 3)]);
}

/// The lease of the claim may be in it, and its slice must not be made twice.
/// Failure: the ledger is damaged at a Prepare
#[test]
fn refuses_claim_beside_damaged_ledger() {
    let world = World::small();
    let at = place(&world, "1g.6gb", 0, 1);
    prepare(&world, "a", &at).unwrap();
    world.damage_all();
    let line = prepare(&world, "a", &at).unwrap_err().line();
    has(&line, "is damaged");
    has(&line, "migctl gc --repair");
    world.repair();
    prepare(&world, "a", &at).unwrap();
    world.the_instance();
}

/// A promise on an idle slice has hardware, although nobody has begun to make it.
/// Failure: a promise on an idle slice ends before Prepare
#[test]
fn promise_on_idle_slice_loses_nothing() {
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    let at = place(&world, "1g.6gb", 0, 1);
    prepare(&world, "a", &at).unwrap();
    unprepare(&world, "a").unwrap();
    promise(&world, "b", &at).unwrap();
    world.configure("");
    ends_last(&world, "b");
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
