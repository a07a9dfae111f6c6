//! `migctl apply --wait`, beside leases that are in the way.

use crate::layouts::leases::{apply, fields, records, there};
use testkit::faults::steps;
use testkit::faults::strace::Point;
use testkit::prelude::*;

/// Failure: a lease is in the way of `migctl apply --wait`
#[test]
fn waits_for_leases_in_the_way() {
    let world = World::small();
    world.create("train");
    let mut command = apply(&world, r#"{"4g.24gb": 1}"#);
    let mut waiting = going(command.args(["--wait", "10m"]));
    let queued = || !world.queue().is_empty();
    until("it is in the queue", || {
        queued() || waiting.ended().is_some()
    });
    // Its GPU is reserved.
    world.refuses("late", "migctl apply");
    has(&world.tells(&["list"]), "layout wanted");
    world.delete("train");
    waiting.end().ok();
    assert_eq!(fields(&world.leases(), "state"), ["layout"]);
    assert!(!queued());
}

#[test]
fn waits_no_longer_than_asked() {
    let world = World::small();
    world.create("train");
    let before = (records(&world), there(&world));
    let mut command = apply(&world, r#"{"4g.24gb": 1}"#);
    said(command.args(["--wait", "100ms"])).refused_for("container train has 1g.6gb at ");
    assert_eq!((records(&world), there(&world)), before);
    said(apply(&world, "{}").args(["--wait", "soon"])).exits(2);
}

/// An apply that kept the slice would have a record of nothing.
#[test]
fn release_under_way_is_waited_for() {
    let world = World::small();
    world.create("train");
    world.takes("nvmlComputeInstanceDestroy", 500);
    let deleting = going(&mut world.runmig(&["delete", "--force", "train"]));
    let is_going = || fields(&world.leases(), "state") == ["releasing"];
    until("the release has begun", || {
        is_going() || world.leases().is_empty()
    });
    said(apply(&world, r#"{"1g.6gb": 1}"#).args(["--wait", "10m"])).ok();
    deleting.end().ok();
    assert_eq!(fields(&world.leases(), "state"), ["layout"]);
    assert_eq!((there(&world).len(), world.records().len()), (1, 1));
}

/// An apply that is stopped at each look at the ledger meets a release.
/// Failure: a container ends while `apply` looks at driver and ledger
#[test]
fn release_between_looks_fails_no_apply() {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    let (log, leases) = (world.path("strace.log"), world.state().join("ledger.json"));
    let mut looks = 0;
    loop {
        world.create("train");
        let look = Point {
            call: "openat".to_owned(),
            nth: looks + 1,
            shown: String::new(),
        };
        let call = apply(&world, r#"{"1g.6gb": 1}"#).into();
        let mut applying = strace::stopped_at(&call, &log, (&look, Some(&leases)));
        let is_over = applying.ended().is_some();
        let mut deleting = going(&mut world.runmig(&["delete", "--force", "train"]));
        until("it is deleted, or waits for the apply", || {
            deleting.ended().is_some() || steps::waits(deleting.pid())
        });
        strace::go_on(&applying);
        applying.end().ok();
        deleting.end().ok();
        assert_eq!((there(&world).len(), world.records().len()), (1, 1));
        assert_eq!(fields(&world.leases(), "state"), ["layout"]);
        said(&mut apply(&world, "{}")).ok();
        if is_over {
            break;
        }
        looks += 1;
    }
    assert!(looks > 2, "hardly a look was found: {looks}");
}
