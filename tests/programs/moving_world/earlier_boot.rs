//! Many leases of an earlier boot, whose instances went with it.

use super::{ID, World};
use runmig_lease::model::{InstanceId, LeaseId};
use runmig_lease::store::{Holder, Store};
use std::sync::Arc;
use testkit::faults::strace::Call;
use testkit::prelude::*;

/// A machine after a reboot, with as many leases of before, the first of a bundle that is still there.
fn after_boot(world: &World, count: usize) {
    world.abandoned(ID);
    world.reboot();
    let store = Store::existing(&world.state(), Duration::from_secs(10));
    let store = store.unwrap().unwrap();
    let first = store.list().unwrap().held().next().unwrap().clone();
    let ledger = store.lock("test").unwrap();
    for n in 1..count {
        let mut held = first.clone();
        let (lease, instance) = (&mut held.lease, &mut held.instance);
        let (lease, instance) = (Arc::make_mut(lease), Arc::make_mut(instance));
        lease.id = LeaseId::new(format!("{n:032x}"));
        instance.id = InstanceId::new(format!("{n:032x}"));
        lease.instance = instance.id.clone();
        let Holder::Container(container) = &mut lease.holder else {
            unreachable!("the lease is a container's");
        };
        container.bundle = world.path("gone");
        ledger.put_new(&held).unwrap();
    }
}

/// Counts the system calls of a collector for so many leases.
fn calls_for(world: &World, count: usize) -> BTreeMap<String, usize> {
    after_boot(world, count);
    let names = "flock,fsync,getdents64,openat,unlink";
    let gc = Call::from(world.migctl(&["gc"]));
    let mut calls = BTreeMap::new();
    for point in strace::calls(&gc, &world.path("strace.log"), names) {
        *calls.entry(point.call).or_default() += 1;
    }
    world.as_if_nothing_had_been().unwrap();
    calls
}

/// Only each bundle and each event is opened; nothing else grows with their number.
/// Failure: thousands of leases of an earlier boot remain
#[test]
fn collects_earlier_boots_in_linear_work() {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    let (few, many) = (calls_for(&world, 10), calls_for(&world, 60));
    let mut more: BTreeMap<&str, usize> = { many.iter() }
        .map(|(call, count)| (call.as_str(), count - few[call]))
        .collect();
    // Events of one change are written together.
    let files = more.remove("openat");
    assert!(files.is_some_and(|files| files <= 5), "{many:?}");
    let expected = [("flock", 0), ("fsync", 0), ("getdents64", 0), ("unlink", 0)];
    assert_eq!(more, BTreeMap::from(expected), "{many:?}");
}

#[test]
fn collectors_share_earlier_boots() {
    let world = World::small();
    after_boot(&world, 300);
    world.tells(&["gc", "--dry-run"]);
    assert_eq!(world.records().len(), 600);
    let gcs = [(); 2].map(|()| going(&mut world.migctl(&["gc"])));
    gcs.into_iter().for_each(|gc| drop(gc.end().ok()));
    world.as_if_nothing_had_been().unwrap();
}
