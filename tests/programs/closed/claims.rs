//! Claims on a GPU that gives nothing new.

use super::*;
use crate::claims;
use runmig_lease::error::Result;
use runmig_lease::store::Held;

fn promise(world: &World) -> Result<Held> {
    claims::promise(world, "a", &claims::place(world, world.profile, 0, 1))
}

fn prepare(world: &World) -> Result<Held> {
    claims::prepare(world, "a", &claims::place(world, world.profile, 0, 1))
}

#[test]
fn gets_no_promise_on_a_closed_gpu() {
    let world = World::small();
    world.tells(&["cordon", "0"]);
    for refused in [promise(&world), prepare(&world)] {
        let line = refused.unwrap_err().line();
        has(&line, "GPU 0 gives nothing new: cordoned since");
        has(&line, "hint: run migctl uncordon 0, or delete the pod");
    }
    world.tells(&["uncordon", "0"]);
    health(&world, 0, sick());
    let line = promise(&world).unwrap_err().line();
    has(&line, "gives nothing new: sick: ");
    assert_eq!(world.leases(), Vec::<Value>::new());
}

/// A promise is a lease: a later cordon lets it become a slice. A sick GPU makes none.
#[test]
fn promise_before_a_cordon_is_kept() {
    let world = World::small();
    promise(&world).unwrap();
    health(&world, 0, sick());
    let line = prepare(&world).unwrap_err().line();
    has(&line, "GPU 0 is sick: the driver asks for its reset");
    has(&line, "hint: run migctl drain 0 --wait");
    assert!(world.instances().is_empty());
    health(&world, 0, Health::default());
    world.tells(&["cordon", "0"]);
    prepare(&world).unwrap();
    // What is there stays, whatever comes.
    health(&world, 0, sick());
    prepare(&world).unwrap();
    assert_eq!(world.instances().len(), 1);
}

/// An idle slice is new to its claim.
#[test]
fn sick_gpu_hands_no_idle_slice_to_a_promise() {
    let world = World::small();
    world.configure("keep_idle = \"5m\"");
    world.delete_all(&world.full());
    promise(&world).unwrap();
    health(&world, 0, sick());
    has(&prepare(&world).unwrap_err().line(), "GPU 0 is sick");
    health(&world, 0, Health::default());
    let there = world.instances().len();
    prepare(&world).unwrap();
    assert_eq!(world.instances().len(), there, "it is reused");
}
