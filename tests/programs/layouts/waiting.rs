//! `migctl apply` beside releases.

use crate::layouts::leases::apply;
use testkit::faults::steps;
use testkit::faults::strace::Point;
use testkit::prelude::*;

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
        assert_eq!((world.instances().len(), world.records().len()), (1, 1));
        assert_eq!(world.states(), ["layout"]);
        said(&mut apply(&world, "{}")).ok();
        if is_over {
            break;
        }
        looks += 1;
    }
    assert!(looks > 2, "hardly a look was found: {looks}");
}
