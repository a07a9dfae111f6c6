//! `migctl drain` waits for the end of what is on a GPU.

use super::*;

#[test]
fn names_what_is_left_and_ends_with_a_free_gpu() {
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    world.create_all(&["a", "b"]);
    let drains = world.ctl(&["drain", "0", "--reason", "repair"]).ok();
    drains.says("GPU 0 has 1g.6gb").says("of a\n");
    world.refuses("c", "drained since 20");
    let drain = going(world.migctl(&["drain", "0", "--wait"]).stdin(Stdio::null()));
    world.delete("a");
    assert_eq!(world.lease_of("b")["state"], "ready");
    world.delete("b");
    ends_with(&drain.end().ok().stdout, "GPU 0 is free\n");
    // An idle slice is nobody's.
    assert!(world.instances().is_empty(), "{:?}", world.instances());
    assert_eq!(world.leases(), Vec::<Value>::new());
    world.tells(&["uncordon", "0"]);
    world.configure("");
    world.create("c");
    world.all_go(&["c"]);
}

#[test]
fn fails_when_its_time_is_over_and_keeps_the_living() {
    let world = World::small();
    world.create("a");
    let line = world.ctl(&["drain", "0", "--wait=1ms", "-o", "json"]);
    line.exits(1)
        .warns("cannot drain GPU 0 in time: leases on it: 1; hint: end their containers");
    world.has_its_slices("a").unwrap();
    // What is on a GPU that is cordoned is to stay.
    world.tells(&["cordon", "0"]);
    world.refuses("b", "GPU 0: cordoned since 20");
    world.tells(&["uncordon", "0"]);
    world.all_go(&["a"]);
}

/// Failure: a container died, and no engine deletes it
#[test]
fn collects_the_dead_and_leaves_administrators_instances() {
    let world = World::small();
    world.admin_creates(0, world.profile, 3, true);
    world.abandoned("dead");
    has(&world.tells(&["drain", "0", "--wait"]), "GPU 0 is free");
    assert_eq!(world.instances().len(), 1);
    assert_eq!(world.leases(), Vec::<Value>::new());
}

/// Failure: a slice of a dead container is in use, and its GPU is drained
#[test]
fn names_what_keeps_slices_of_the_dead() {
    let world = World::small();
    world.abandoned("dead");
    let slice = world.instances().remove(0);
    let holder = world.hold(slice.gpu, slice.gi, Some(0));
    let drain = world.ctl(&["drain", "0", "--wait=1ms"]).exits(1);
    drain.says(" of dead, which is quarantined\n");
    drain.warns("hint: run migctl gc to see what keeps them");
    drop(holder);
    has(&world.tells(&["drain", "0", "--wait"]), "GPU 0 is free");
}
