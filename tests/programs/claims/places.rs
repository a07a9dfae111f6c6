//! The place that a claim gets where others were faster.

use super::*;

/// Failure: a local slice or a foreign instance took the place
#[test]
fn promise_moves_within_its_gpu() {
    let world = World::small();
    let at = place(&world, "1g.6gb", 0, 1);
    world.admin_creates(0, "1g.6gb", 0, true);
    let held = promise(&world, "a", &at).unwrap();
    // placement's choice: beside the other, so that 2g.12gb has room.
    assert_eq!(start(&held), 1);
    // A promise that is on record stays where it is.
    assert_eq!(start(&promise(&world, "a", &at).unwrap()), 1);
    assert_eq!(start(&prepare(&world, "a", &at).unwrap()), 1);
}

#[test]
fn refusal_names_the_holder() {
    let world = World::small();
    world.create_asking("train", "4g.24gb");
    let at = place(&world, "1g.6gb", 0, 1);
    let line = prepare(&world, "a", &at).unwrap_err().line();
    for words in [
        "cannot make 1g.6gb at 0:1",
        "for claim team-a/a-gpu (pod team-a/train): container train has 4g.24gb",
        "hint: delete that holder",
    ] {
        has(&line, words);
    }
    assert_eq!(world.leases().len(), 1);
}

#[test]
fn refusal_names_foreign_instance() {
    let world = World::small();
    let gi = world.admin_creates(0, "4g.24gb", 0, true);
    let at = place(&world, "2g.12gb", 0, 2);
    let line = promise(&world, "a", &at).unwrap_err().line();
    let foreign = format!("GPU instance {gi} on GPU 0, which runmig did not make");
    has(&line, &foreign);
}

/// Failure: the GPU is gone, or not in MIG mode, or lacks the profile
#[test]
fn refuses_places_that_gpu_lacks() {
    let world = World::small();
    for (at, why) in testkit::rows! {
        place(&world, "1g.6gb", 9, 1) => "GPU 0 has no 1g.6gb at 9:1";
        place(&world, "3g.40gb", 0, 4) => "GPU 0 has no 3g.40gb at 0:4";
        testkit::claims::place("GPU-other", "1g.6gb", 0, 1) => "GPU GPU-other is not there";
    } {
        for outcome in [promise(&world, "a", &at), prepare(&world, "a", &at)] {
            let line = outcome.unwrap_err().line();
            has(&line, why);
            has(&line, "delete the pod");
        }
    }
    world.change(|machine, _| machine.gpus[0].mode = Mode::Off);
    let at = place(&world, "1g.6gb", 0, 1);
    let line = promise(&world, "a", &at).unwrap_err().line();
    has(&line, "GPU 0 is not in MIG mode; hint: switch MIG mode on");
    nothing_is_left(&world);
}

/// The driver refuses a place that looks free, as real ones do at times. Of `+me` a GPU has one.
#[test]
fn moves_from_place_that_driver_refuses() {
    for profile in ["1g.6gb", "1g.6gb+me"] {
        let world = World::small();
        let at = place(&world, profile, 0, 1);
        let create = "nvmlDeviceCreateGpuInstanceWithPlacement";
        world.fault(create, 1, Some(1), Outcome::Return(23));
        let held = prepare(&world, "a", &at).unwrap();
        assert_ne!(start(&held), 0, "{profile}");
        assert_eq!(world.the_instance().start, start(&held));
        assert_eq!(world.leases().len(), 1);
    }
}
