//! The geometry that creates keep in the state directory: used by the next, read again where it cannot
//! be trusted, and never a reason to fail.

use sha2::{Digest, Sha256};
use std::fs::Permissions;
use testkit::faults::operations::ID;
use testkit::faults::strace::Call;
use testkit::prelude::*;

const UNFINISHED: &str = ".new-geometry";

/// Whether a command asks the driver for the places of profiles.
fn asks(world: &World, during: impl FnOnce()) -> bool {
    let calls = world.driver_calls(during);
    assert!(!calls.is_empty());
    { calls.iter() }.any(|call| call.contains("PossiblePlacements"))
}

/// The same for a create, whose container goes again.
fn create_asks(world: &World) -> bool {
    let asked = asks(world, || drop(world.create(ID)));
    world.delete(ID);
    asked
}

/// A machine whose geometry a create has kept.
fn kept() -> World {
    let world = World::small();
    assert!(create_asks(&world));
    world
}

fn text(world: &World) -> String {
    fs::read_to_string(world.geometry()).unwrap()
}

/// Changes the body, and makes the hash right.
fn rewrite(world: &World, change: impl FnOnce(&mut Value)) {
    let text = text(world);
    let (head, body) = text.trim_end().split_once('\n').unwrap();
    let [mut head, mut body]: [Value; 2] =
        [head, body].map(|json| serde_json::from_str(json).unwrap());
    change(&mut body);
    let body = body.to_string();
    let hash = Sha256::digest(body.as_bytes());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    head["sha256"] = hash.into();
    fs::write(world.geometry(), format!("{head}\n{body}\n")).unwrap();
}

fn profiles(body: &mut Value) -> &mut Vec<Value> {
    let gpus = body["gpus"].as_object_mut().unwrap();
    let gpu = gpus.values_mut().next().unwrap();
    gpu.as_array_mut().unwrap()
}

/// A create after the change reads the driver, and leaves the file as it was before.
#[track_caller]
fn is_read_again(world: &World, what: &str, change: impl FnOnce()) {
    let before = text(world);
    change();
    assert!(create_asks(world), "{what}");
    assert_eq!(text(world), before, "{what}");
    assert!(!create_asks(world), "{what}");
    assert!(!world.state().join(UNFINISHED).exists(), "{what}");
}

#[test]
fn keeps_geometry_for_the_next_create() {
    let world = kept();
    assert!(!create_asks(&world));
    world.all_slots_can_be_filled();
}

/// Failure: the file `geometry` of the state directory is damaged, from another version, boot, driver or GPU, or others can write to it
#[test]
fn reads_damaged_geometry_again() {
    let world = kept();
    let whole = text(&world);
    for (what, damaged) in [
        ("empty", String::new()),
        ("cut off", whole[..whole.len() / 2].to_owned()),
        ("changed", whole.replace("2g.12gb", "2g.13gb")),
        ("too large", whole.clone() + &" ".repeat(1 << 20)),
    ] {
        is_read_again(&world, what, || {
            fs::write(world.geometry(), &damaged).unwrap();
        });
    }
    is_read_again(&world, "no text", || {
        fs::write(world.geometry(), [0xff; 100]).unwrap();
    });
}

#[test]
fn reads_geometry_of_others_again() {
    let world = kept();
    is_read_again(&world, "format", || {
        let other = text(&world).replace("runmig.dev/v1", "runmig.dev/v0");
        fs::write(world.geometry(), other).unwrap();
    });
    for field in ["driverVersion", "bootId"] {
        is_read_again(&world, field, || {
            rewrite(&world, |body| body[field] = "another".into());
        });
    }
    is_read_again(&world, "another GPU", || {
        rewrite(&world, |body| {
            let gpus = body["gpus"].as_object_mut().unwrap();
            let one = gpus.values().next().unwrap().clone();
            gpus.clear();
            gpus.insert("GPU-another".into(), one);
        });
    });
}

/// A GPU reset may put another ECC mode or firmware in force.
/// Failure: a GPU reset changes what a GPU offers (ECC mode, firmware)
#[test]
fn reads_again_what_the_driver_contradicts() {
    let world = kept();
    is_read_again(&world, "more memory", || {
        rewrite(&world, |body| {
            for offer in profiles(body) {
                let memory = offer["profile"]["memoryMib"].as_u64().unwrap();
                offer["profile"]["memoryMib"] = (memory * 2).into();
            }
        });
    });
}

#[test]
fn distrusts_geometry_that_others_can_write() {
    let world = kept();
    is_read_again(&world, "mode", || {
        fs::set_permissions(world.geometry(), Permissions::from_mode(0o666)).unwrap();
    });
    if nix::unistd::geteuid().is_root() {
        is_read_again(&world, "owner", || {
            std::os::unix::fs::chown(world.geometry(), Some(65534), None).unwrap();
        });
    }
    is_read_again(&world, "link", || {
        let elsewhere = world.path("elsewhere");
        fs::rename(world.geometry(), &elsewhere).unwrap();
        fs::set_permissions(&elsewhere, Permissions::from_mode(0o666)).unwrap();
        symlink(elsewhere, world.geometry()).unwrap();
    });
}

/// Failure: the file `geometry` is wrong and whole
#[test]
fn gives_nothing_twice_by_wrong_geometry() {
    let world = kept();
    // Every place of two slices is said to be one slice long, and to start anywhere.
    rewrite(&world, |body| {
        for offer in profiles(body) {
            if offer["profile"]["name"] == "2g.12gb" {
                let places = (0..4).map(|start| json!({ "start": start, "size": 1 }));
                offer["profile"]["placements"] = places.collect();
            }
        }
    });
    let mut made = Vec::new();
    for n in 0..6 {
        let id = format!("c{n}");
        world.bundle_asking(&id, ["1g.6gb", "2g.12gb"][n % 2]);
        let out = said(&mut world.create_command(&id));
        world.nothing_lost_nothing_given_twice().unwrap();
        if out.status.success() {
            made.push(id);
        }
    }
    assert!(!made.is_empty() && made.len() < 6, "{made:?}");
    made.iter().for_each(|id| drop(world.delete(id)));
    world.forget_geometry();
    world.all_slots_can_be_filled();
}

/// Failure: `geometry` cannot be written: the disk is full, a folder is in the way, or a writer was killed
#[test]
fn creates_without_room_for_geometry() {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    let log = world.path("strace.log");
    let call = || Call::from(world.create_command(ID));
    let writes = strace::calls(&call(), &log, "write");
    world.delete(ID);
    let point = { writes.iter() }.find(|p| p.shown.contains(UNFINISHED));
    let point = point.expect("geometry is written");
    world.forget_geometry();
    let out = strace::settled(&strace::failing(&call(), &log, point, "ENOSPC"));
    assert!(out.status.success(), "{out:?}");
    assert!(strace::injected(&log).contains(UNFINISHED));
    assert!(!world.geometry().exists());
    assert!(!world.state().join(UNFINISHED).exists());
    let said = fs::read_to_string(world.state().join("runmig.log")).unwrap_or_default();
    assert!(!said.contains("geometry"), "{said}");
    world.delete(ID);
    assert!(create_asks(&world));
}

#[test]
fn takes_over_from_a_killed_writer() {
    let world = World::small();
    let unfinished = world.state().join(UNFINISHED);
    assert!(create_asks(&world));
    is_read_again(&world, "killed", || {
        fs::write(&unfinished, "x".repeat(10_000)).unwrap();
        world.forget_geometry();
    });
    // Nothing of runmig's is a folder there.
    world.forget_geometry();
    fs::create_dir(&unfinished).unwrap();
    assert!(create_asks(&world));
    assert!(!world.geometry().exists());
}

#[test]
fn looks_without_writing_geometry() {
    let world = World::small();
    let look = || drop(said(&mut world.migctl(&["gpus"])).ok());
    assert!(asks(&world, look));
    assert!(!world.state().exists());
    assert!(create_asks(&world));
    assert!(!asks(&world, look));
    world.forget_geometry();
    assert!(asks(&world, look));
    assert!(!world.geometry().exists());
}

/// An answer that is wrong once does not stay.
/// Failure: the driver gives a wrong answer about profiles once
#[test]
fn keeps_no_answer_given_once() {
    let world = World::small();
    // The second profile is missing from the first answer.
    let call = "nvmlDeviceGetGpuInstanceProfileInfoV";
    world.fault(call, 2, Some(2), nvml_sim::fault::Outcome::Return(3));
    world.create(ID);
    world.no_faults();
    world.delete(ID);
    let kept = fs::read_to_string(world.geometry()).unwrap();
    assert!(!kept.contains("1g.6gb"), "{kept}");
    assert!(create_asks(&world));
}
