//! Leases that a kill left without their instance. They are whole records, so nothing is damaged.

use crate::damaged_ledger::ID;
use testkit::faults::strace::{self, Call};
use testkit::prelude::*;

/// Failure: a kill between the two records of a create, or between their removals
#[test]
fn lists_lease_without_instance() {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    let log = world.path("strace.log");
    let create = || Call::from(world.create_command(ID));
    let points = strace::points(&create(), &log, true);
    world.delete(ID);
    // The lease has its name by the first rename, the instance by the second.
    let is_record = |point: &&strace::Point| {
        point.call.starts_with("rename") && point.shown.contains("/instances/")
    };
    let point = points
        .iter()
        .find(is_record)
        .expect("an instance is recorded");
    assert!(strace::killed_at(&create(), &log, point));

    let list = said(&mut world.migctl(&["list"])).ok();
    let told = format!("of container {ID} has no instance: a kill ended its create or its release");
    assert!(list.stderr.contains(&told), "{list:?}");
    assert!(
        list.stderr.contains("hint: migctl gc removes it"),
        "{list:?}"
    );
    assert!(!list.stdout.contains(ID), "{list:?}");
    let gc = world.gc().ok();
    let why = "a killed process left it without an instance";
    assert!(gc.stdout.contains(why), "{gc:?}");
    world.as_if_nothing_had_been().unwrap();
    let list = said(&mut world.migctl(&["list"])).ok();
    assert_eq!(list.stderr, "");
}
