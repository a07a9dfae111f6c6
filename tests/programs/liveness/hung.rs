//! A file system whose server does not answer blocks no call of runmig.

use testkit::fuse::{Fuse, Holder};
use testkit::prelude::*;

/// Failure: a process on the machine has a file open there
#[test]
fn file_on_hung_mount_blocks_nothing() {
    let world = World::small();
    let holder = match Holder::new() {
        Ok(holder) => holder,
        Err(why) => return skip(why),
    };
    world.configure("keep_idle = \"5m\"");
    world.comes_and_goes("a");
    let made = world.the_instance();
    // The search for holders of the idle slice passes every open file.
    world.create("b");
    let log = world.log();
    assert_eq!(world.the_instance(), made, "{log}");
    said(&mut world.runmig(&["start", "b"])).ok();
    world.delete("b");
    world.configure("adopt = true");
    world.gc().ok();
    world.admin_leaves(0, world.profile, 2);
    world.create("c");
    assert_eq!(world.lease_of("c")["adopted"], true);
    world.delete("c");
    world.gc().ok();
    holder.was_left_alone();
    world.as_if_nothing_had_been().unwrap();
}

/// The same, where the container's bundle or its low-level runtime's record is what hangs.
/// Failure: the bundle of a dead container lies there
#[test]
fn hung_bundle_is_left_alone() {
    let world = World::small();
    world.abandoned("a");
    let bundle = world.path("bundles/a");
    let fuse = match Fuse::new(&bundle) {
        Ok(fuse) => fuse,
        Err(why) => return skip(why),
    };
    fuse.hang();
    world.gc().ok();
    assert!(world.leases().is_empty() && world.instances().is_empty());
    let log = world.log();
    let line = log.lines().find(|l| l.contains("does not answer")).unwrap();
    has(line, bundle.to_str().unwrap());
    assert!(fuse.asked() > 0);
    fuse.nobody_was_stuck();
}

/// Failure: the low-level runtime's record of a container in creation lies there
#[test]
fn hung_runtime_record_counts_as_alive() {
    let world = World::small();
    // Open until the runtime is dead: at the end of the file it would fail, and the create would release the lease.
    let (create, gate) = world.halted("a", "create-waits");
    let runtime = children(create.pid());
    create.kill();
    runtime.into_iter().for_each(kill);
    drop(gate);
    let root = world.root().join("a");
    let fuse = match Fuse::new(&root) {
        Ok(fuse) => fuse,
        Err(why) => return skip(why),
    };
    fuse.hang();
    world.gc().ok().says("kept").says("does not answer");
    fuse.nobody_was_stuck();
    drop(fuse);
    world.behave("");
    world.nobody_is_left();
}
