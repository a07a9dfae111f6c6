//! Killed anywhere: every system call with an effect, and every call to the driver, of everything
//! that makes or gives back a slice. The points are found by running the operation, so one that is
//! added later is tried without anyone listing it.

mod faults_support;
mod support;

use faults_support::World;
use faults_support::check::names;
use faults_support::strace::{self, Call, Point, settled};
use nvml_sim::fault::{Moment, Outcome};
use std::fs;
use std::io::Write;
use support::process::until;
use support::said;

/// What is killed.
struct Operation {
    name: &'static str,
    /// What the world is like before it; gives the command.
    begin: fn(&World) -> Call,
}

const ID: &str = "victim";
/// At a point that is not reached.
const TRIES: usize = 4;

const OPERATIONS: [Operation; 15] = [
    Operation {
        name: "create",
        begin: |world| world.create_command(ID).into(),
    },
    Operation {
        name: "create-again",
        begin: |world| {
            // The bundle is still edited, and the lease of a container that is no more is there.
            world.abandoned(ID);
            world.create_command(ID).into()
        },
    },
    Operation {
        name: "create-that-fails",
        begin: |world| {
            world.behave("create-fails-early");
            world.create_command(ID).into()
        },
    },
    Operation {
        name: "run",
        begin: |world| {
            world.behave("run-ends\nno-hooks");
            world.make_command("run", ID).into()
        },
    },
    Operation {
        name: "poststop",
        begin: |world| {
            let lease = world.abandoned(ID);
            world.hook(ID, &lease)
        },
    },
    Operation {
        name: "delete",
        begin: |world| {
            world.create(ID);
            world.behave("no-hooks");
            world.runmig(&["delete", "--force", ID]).into()
        },
    },
    Operation {
        name: "gc",
        begin: |world| {
            world.abandoned(ID);
            world.migctl(&["gc"]).into()
        },
    },
    Operation {
        name: "release",
        begin: |world| {
            world.abandoned(ID);
            world.migctl(&["release", ID]).into()
        },
    },
    Operation {
        name: "create-from-idle",
        begin: |world| {
            idle(world);
            world.create_command(ID).into()
        },
    },
    Operation {
        name: "delete-to-idle",
        begin: |world| {
            world.configure(KEPT);
            world.create(ID);
            world.behave("no-hooks");
            world.runmig(&["delete", "--force", ID]).into()
        },
    },
    Operation {
        name: "create-adopting",
        begin: |world| {
            world.configure("adopt = true");
            world.admin_leaves(0, world.profile, 2);
            world.create_command(ID).into()
        },
    },
    Operation {
        name: "delete-adopted",
        begin: |world| {
            world.configure("adopt = true");
            world.admin_leaves(0, world.profile, 2);
            world.create(ID);
            world.behave("no-hooks");
            world.runmig(&["delete", "--force", ID]).into()
        },
    },
    Operation {
        name: "create-shared",
        begin: |world| {
            in_pod(world, PEER);
            world.create(PEER);
            in_pod(world, SHARES);
            world.create_command(SHARES).into()
        },
    },
    Operation {
        name: "gc-of-shared",
        begin: |world| {
            for id in [PEER, SHARES] {
                in_pod(world, id);
                world.create(id);
            }
            world.behave("no-hooks");
            for id in [PEER, SHARES] {
                said(&mut world.bare(&["delete", "--force", id])).ok();
            }
            world.behave("");
            world.migctl(&["gc"]).into()
        },
    },
    Operation {
        name: "wait",
        begin: |world| {
            world.bundle_saying(
                ID,
                &[
                    ("runmig.dev/slice", world.profile),
                    ("runmig.dev/wait", "10m"),
                ],
            );
            world.bundle_asking(HOLDER, "4g.24gb");
            world.create(HOLDER);
            makes_way(world);
            world.create_command(ID).into()
        },
    },
];

const KEPT: &str = "keep_idle = \"5m\"";
const PEER: &str = "peer";
const SHARES: &str = "shares";

/// A slice that nobody has.
fn idle(world: &World) {
    world.configure(KEPT);
    world.create("before");
    world.delete("before");
}

fn in_pod(world: &World, id: &str) {
    world.bundle_in_pod(id, world.profile, "pod");
}

const HOLDER: &str = "holder";

/// Once somebody waits, or was killed before that, the whole GPU is given back.
fn makes_way(world: &World) {
    let mut delete = world.runmig(&["delete", "--force", HOLDER]);
    let (queue, stop) = (world.state().join("queue"), world.path("stop"));
    let done = world.path("done");
    fs::write(world.path("makes-way"), "").unwrap();
    std::thread::spawn(move || {
        let waits = |name: &String| !name.starts_with('.');
        until("somebody waits", || {
            stop.exists() || names(&queue).iter().any(waits)
        });
        said(&mut delete).ok();
        fs::write(done, "").unwrap();
    });
}

fn way_is_made(world: &World) {
    if world.path("makes-way").exists() {
        fs::write(world.path("stop"), "").unwrap();
        until("the other has made way", || world.path("done").exists());
        for file in ["makes-way", "stop", "done"] {
            fs::remove_file(world.path(file)).unwrap();
        }
    }
}

/// After the kill: first what may never be otherwise, then that somebody puts everything right.
fn judge(world: &World, at: &str, number: usize) {
    let complain = |what: String| panic!("killed at {at}: {what}");
    world.behave("");
    world.no_faults();
    way_is_made(world);
    let living = [ID, SHARES, PEER].map(|id| world.living_init(id).map(|_| id));
    for id in living.into_iter().flatten() {
        // The low-level runtime went on: the container keeps its slice, whoever collects.
        world.gc().ok();
        let lease = world.lease_of(id);
        let uuid = world.uuid_in_bundle(id);
        if uuid.is_none() || lease["migUUID"].as_str() != uuid.as_deref() {
            complain(format!("a living container without its slice: {lease}"));
        }
        world
            .nothing_lost_nothing_given_twice()
            .unwrap_or_else(complain);
        world.delete(id);
    }
    if let Some(lost) = world.lost_of_theirs() {
        complain(format!("an administrator's instance is gone: {lost}"));
    }
    // What is kept, and what others left, goes too: nothing else may be there.
    world.configure("");
    world.admin_tidies_up();
    // Every third time nobody collects: then it is for the next create to do.
    if !number.is_multiple_of(3) {
        world.gc().ok();
        world.as_if_nothing_had_been().unwrap_or_else(complain);
    } else {
        world.all_slots_can_be_filled();
        // What left room enough waits for the next to come.
        world.gc().ok();
        world.as_if_nothing_had_been().unwrap_or_else(complain);
    }
}

fn every_system_call(operation: &Operation) {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    let log = world.path("strace.log");
    let run = |act: &mut dyn FnMut(&Call)| {
        let call = (operation.begin)(&world);
        act(&call);
    };
    // Twice: the first makes what is made at first use only. How often a wait looks again is a matter
    // of timing, so what only one of them passed is tried, but nothing says that it must be met.
    let mut passed: Vec<(Point, usize)> = Vec::new();
    for _ in 0..2 {
        run(&mut |call| {
            let status_matters = operation.name != "create-that-fails";
            for point in strace::points(call, &log, status_matters) {
                let same = |(p, _): &&mut (Point, _)| (&p.call, p.nth) == (&point.call, point.nth);
                match passed.iter_mut().find(same) {
                    Some((_, times)) => *times += 1,
                    None => passed.push((point, 1)),
                }
            }
        });
        judge(&world, "no point", 0);
    }
    let mut missed = 0;
    for (number, (point, times)) in passed.iter().enumerate() {
        let at = format!(
            "{} {} (the {}th): {}",
            operation.name, point.call, point.nth, point.shown
        );
        let is_certain = *times == 2;
        let mut reached = false;
        for _ in 0..if is_certain { TRIES } else { 1 } {
            run(&mut |call| reached = strace::killed_at(call, &log, point));
            judge(&world, &at, number);
            if reached {
                break;
            }
        }
        missed += usize::from(is_certain && !reached);
    }
    let points: Vec<&Point> = passed.iter().map(|(point, _)| point).collect();
    world.all_slots_can_be_filled();
    report(operation, "system calls", points.len(), missed);
    assert!(points.len() > 10, "hardly a point was found: {points:?}");
    // A timing may hide a few; more would mean that the points are no longer those of the operation.
    assert!(
        missed * 10 <= points.len(),
        "{missed} points were not reached"
    );
}

fn every_driver_call(operation: &Operation) {
    let world = World::small();
    let mut calls = Vec::new();
    let call = (operation.begin)(&world);
    calls.extend(world.driver_calls(|| drop(settled(&call))));
    judge(&world, "no call", 0);
    let (mut tried, mut missed) = (0, 0);
    let mut seen = std::collections::HashMap::new();
    for name in &calls {
        let nth = seen.entry(name.as_str()).or_insert(0);
        *nth += 1;
        let changes = name.contains("Create") || name.contains("Destroy");
        let moments = if changes {
            [Moment::Before, Moment::During, Moment::After].as_slice()
        } else {
            &[Moment::Before]
        };
        for &moment in moments {
            let call = (operation.begin)(&world);
            world.fault(name, *nth, Some(*nth), Outcome::Kill(moment));
            let said = settled(&call);
            tried += 1;
            missed += usize::from(said.status.code().is_some());
            let at = format!("{} {moment:?} {name} (the {nth}th)", operation.name);
            judge(&world, &at, tried);
        }
    }
    report(operation, "driver calls", tried, missed);
    assert!(tried > 10, "hardly a call was found: {calls:?}");
    assert_eq!(missed, 0, "some calls were not reached");
}

/// Past the harness, which keeps what a passing test prints.
fn report(operation: &Operation, what: &str, tried: usize, missed: usize) {
    let _ = writeln!(
        std::io::stderr(),
        "crash matrix: {}: killed at {tried} {what}, {missed} of them not reached",
        operation.name
    );
}

fn named(name: &str) -> &'static Operation {
    OPERATIONS.iter().find(|o| o.name == name).unwrap()
}

macro_rules! matrix {
    ($($test:ident: $name:literal;)*
     / driver_is_not_asked: $($not:ident: $of:literal;)*
     / system_calls_only: $($only:ident: $one:literal;)*) => {
        mod system_calls {
            $(#[test] fn $test() { super::every_system_call(super::named($name)); })*
            $(#[test] fn $not() { super::every_system_call(super::named($of)); })*
            $(#[test] fn $only() { super::every_system_call(super::named($one)); })*
        }
        mod driver_calls {
            $(#[test] fn $test() { super::every_driver_call(super::named($name)); })*
        }
        #[test]
        fn every_operation_has_its_matrix() {
            assert_eq!(OPERATIONS.len(), [$($name,)* $($of,)* $($one),*].len());
        }
        #[test]
        fn the_driver_is_not_asked() {
            for name in [$($of),*] {
                let world = World::small();
                let call = (named(name).begin)(&world);
                assert_eq!(world.driver_calls(|| drop(settled(&call))), [""; 0], "{name}");
            }
        }
    };
}

matrix! {
    create: "create";
    create_again: "create-again";
    create_that_fails: "create-that-fails";
    run: "run";
    poststop: "poststop";
    delete: "delete";
    gc: "gc";
    release: "release";
    create_from_idle: "create-from-idle";
    create_adopting: "create-adopting";
    create_shared: "create-shared";
    gc_of_shared: "gc-of-shared";
    / driver_is_not_asked:
    delete_to_idle: "delete-to-idle";
    delete_adopted: "delete-adopted";
    // Two processes call the driver in it, in no order; what it calls is what a create calls.
    / system_calls_only:
    wait: "wait";
}
