//! Killed anywhere: every state that a killed process can leave, of everything that makes or releases a
//! slice. Between two system calls with an effect, and two calls that change what the driver has, a
//! process leaves the same wherever it is killed, so one kill is tried there. The points are found by
//! running the operation, so one that is added later is tried without anyone listing it.

use nvml_sim::fault::Moment;
use testkit::faults::operations::{
    HOLDER, ID, Kind, Operation, PEER, each_once, named, next_apply_succeeds, torn_records,
    way_is_made, what_stays_goes,
};
use testkit::faults::strace::{Call, Point};
use testkit::faults::{numbered, own_calls};
use testkit::prelude::*;
use testkit::random::Sample;

/// At a point that is not reached.
const TRIES: usize = 4;

/// After the kill: first what may never be otherwise, then that somebody puts everything right.
fn judge(world: &World, at: &str, number: usize) {
    let complain = |what: String| panic!("killed at {at}: {what}");
    world.behave("");
    world.no_faults();
    world.note_daemons();
    torn_records(world).unwrap_or_else(complain);
    way_is_made(world);
    // Every second time a collector comes first.
    if !number.is_multiple_of(2) {
        next_apply_succeeds(world).unwrap_or_else(complain);
    }
    let living = [ID, PEER, HOLDER].map(|id| world.living_init(id).map(|_| id));
    for id in living.into_iter().flatten() {
        // The low-level runtime went on, so the container keeps its slice in every collection.
        world.gc().ok();
        world.has_its_slices(id).unwrap_or_else(complain);
        world.has_whole_limits(id).unwrap_or_else(complain);
        let lost = world.nothing_lost_nothing_given_twice();
        lost.unwrap_or_else(complain);
        world.delete(id);
    }
    what_stays_goes(world, number.is_multiple_of(2)).unwrap_or_else(complain);
    // Every third time no collector runs, and the next create has to do its work.
    if number.is_multiple_of(3) {
        world.all_slots_can_be_filled();
        // Enough room that a kill leaves waits for the next one to come.
    }
    let collected = world.gc().ok();
    world
        .as_if_nothing_had_been()
        .unwrap_or_else(|what| complain(format!("{what}\nthe collector: {collected:?}")));
}

fn every_system_call(operation: &Operation) {
    if !strace::is_there() {
        return;
    }
    let world = operation.world();
    let log = world.path("strace.log");
    let run = |act: &mut dyn FnMut(&Call)| act(&operation.begin(&world));
    let states = || {
        let mut states = Vec::new();
        run(&mut |call| {
            let succeeds = operation.kind != Kind::Refused;
            let passed = strace::points(call, &log, succeeds);
            assert!(passed.len() > 10, "hardly a point was found");
            // A wait is no system call here, and others act meanwhile.
            states = match operation.waits() {
                true => passed,
                false => strace::of_each_state(passed, &world.machine()),
            };
        });
        judge(&world, "no point", 0);
        states
    };
    let is_in = |points: &[Point], point: &Point| {
        let same = |p: &Point| (&p.call, p.nth) == (&point.call, point.nth);
        points.iter().any(same)
    };
    // Twice: the first makes what is made at first use only. How often a wait looks again is a matter
    // of timing, so what only one of them passed is tried, but nothing says that it must be met.
    let (first, again) = (states(), states());
    let only_again = { again.iter() }.filter(|point| !is_in(&first, point));
    let mut passed: Vec<&Point> = first.iter().chain(only_again).collect();
    let mut sample = Sample::of(operation.name);
    passed.retain(|_| sample.takes());
    let mut missed = 0;
    for (number, point) in passed.iter().enumerate() {
        let (call, nth) = (&point.call, point.nth);
        let at = format!("{} {call} (the {nth}th): {}", operation.name, point.shown);
        let is_certain = is_in(&first, point) && is_in(&again, point);
        let mut reached = false;
        for _ in 0..if is_certain { TRIES } else { 1 } {
            run(&mut |call| reached = strace::killed_at(call, &log, point));
            judge(&world, &at, number);
            if reached {
                break;
            }
        }
        // On a busy machine a call more or less shifts those behind it.
        missed += usize::from(is_certain && !reached && is_in(&states(), point));
    }
    world.all_slots_can_be_filled();
    report(operation, "system calls", passed.len(), missed);
    // A timing may hide a few; more would mean that the points are no longer those of the operation.
    let may_miss = passed.len().max(10) / 10;
    assert!(missed <= may_miss, "{missed} points were not reached");
}

fn every_driver_call(operation: &Operation) {
    let world = operation.world();
    let pass = || {
        let call = operation.begin(&world);
        let calls = world.driver_calls_by(|| drop(settled(&call)));
        judge(&world, "no call", 0);
        let count = calls.len();
        let own = own_calls(calls);
        (own.len() < count, own)
    };
    // A wait looks as often as the ledger changes under its eyes, which is a matter of timing. Only what
    // two passes call is sure to be called again.
    let ((others_call, points), (others_call_again, again)) = (pass(), pass());
    let waits = operation.waits() || others_call || others_call_again;
    let repeated = match waits {
        true => Vec::new(),
        false => repeated_looks(&world, operation),
    };
    let mut sample = Sample::of(operation.name);
    let (mut tried, mut missed) = (0, 0);
    for point in &points {
        let (name, nth) = point;
        let is_certain = again.contains(point);
        if repeated.contains(point) || !sample.takes() {
            continue;
        }
        let moments = if is_change(name) {
            [Moment::Before, Moment::During, Moment::After].as_slice()
        } else {
            &[Moment::Before]
        };
        for &moment in moments {
            let at = format!("{} {moment:?} {name} (the {nth}th)", operation.name);
            tried += 1;
            // Which process calls first is a matter of timing too.
            let is_reached = (0..if is_certain { TRIES } else { 1 }).any(|_| {
                let call = operation.begin(&world);
                world.fault(name, *nth, Some(*nth), Outcome::Kill(moment));
                let said = settled(&call);
                judge(&world, &at, tried);
                said.status.code().is_none()
            });
            missed += usize::from(is_certain && !is_reached);
        }
    }
    report(operation, "driver calls", tried, missed);
    assert!(points.len() > 4, "hardly a call was found: {points:?}");
    // As for system calls, the timing of a wait may hide a few.
    let may_miss = if waits { tried.div_ceil(10) } else { 0 };
    assert!(missed <= may_miss, "{missed} calls were not reached");
}

fn is_change(call: &str) -> bool {
    let verbs = ["Create", "Destroy", "Set"];
    verbs.iter().any(|verb| call.contains(verb))
}

/// The calls that only look, and before which nothing has changed since another that only looks: a
/// process that is killed at either leaves the same behind. Without strace nothing is known, and all
/// are tried.
fn repeated_looks(world: &World, operation: &Operation) -> Vec<(String, u64)> {
    if !strace::is_there() {
        return Vec::new();
    }
    let log = world.path("strace.log");
    let machine = world.machine();
    let succeeds = operation.kind != Kind::Refused;
    let call = operation.begin(world);
    let mut passed = Vec::new();
    world.driver_calls_by(|| passed = strace::points(&call, &log, succeeds));
    judge(world, "no call", 0);
    let mut repeated = Vec::new();
    let mut has_looked = false;
    let calls = numbered(passed.iter().map(traced));
    for (point, (call, nth)) in passed.iter().zip(calls) {
        if let Some(name) = call {
            let is_look = !is_change(&name);
            if is_look && has_looked {
                repeated.push((name, nth));
            }
            has_looked = is_look;
        } else if !(point.is_within(&machine) || point.leaves_nothing()) {
            has_looked = false;
        }
    }
    repeated
}

/// The function whose line this system call adds to the simulated driver's trace.
fn traced(point: &Point) -> Option<String> {
    let is_line = point.call == "write" && point.shown.contains("trace.log>");
    let (_, line) = point.shown.split_once('"').filter(|_| is_line)?;
    Some(line.split(' ').nth(1)?.to_owned())
}

/// Past the harness, which keeps what a passing test prints.
fn report(operation: &Operation, what: &str, tried: usize, missed: usize) {
    let _ = writeln!(
        std::io::stderr(),
        "crash matrix: {}: killed at {tried} {what}, {missed} of them not reached",
        operation.name
    );
}

macro_rules! matrix {
    ($($test:ident: $name:literal;)*
     / driver_is_not_asked: $($not:ident: $of:literal;)*
     / errors_only: $($other:literal;)*) => {
        mod system_calls {
            $(#[test] fn $test() { super::every_system_call(super::named($name)); })*
            $(#[test] fn $not() { super::every_system_call(super::named($of)); })*
        }
        mod driver_calls {
            $(#[test] fn $test() { super::every_driver_call(super::named($name)); })*
        }
        #[test]
        fn covers_every_operation() {
            each_once(&[$($name,)* $($of,)* $($other),*]);
        }
        #[test]
        fn asks_no_driver() {
            for name in [$($of),*] {
                // An operation may change the mounts of its thread.
                let alone = std::thread::spawn(move || {
                    let world = named(name).world();
                    let call = named(name).begin(&world);
                    assert_eq!(world.driver_calls(|| drop(settled(&call))), [""; 0], "{name}");
                });
                alone.join().unwrap();
            }
        }
    };
}

matrix! {
    // Failure: a kill of `runmig create` at any instruction
    create: "create";
    create_from_cache: "create-from-cache";
    create_that_fails: "create-that-fails";
    // Failure: a kill of a foreground `run`
    run: "run";
    // Failure: a kill of the hook, `delete`, `gc` or `migctl release`
    poststop: "poststop";
    delete: "delete";
    gc: "gc";
    release: "release";
    repair: "repair";
    // Failure: a kill of a waiting or just woken create at any instruction
    wait: "wait";
    create_mps: "create-mps";
    create_limited: "create-limited";
    create_limited_beside: "create-limited-beside";
    // Failure: a kill of the `gc` that restarts it
    gc_restarting_mps: "gc-restarting-mps";
    // Failure: a kill of the `gc` that sets a raised limit back
    gc_setting_limit_back: "gc-setting-limit-back";
    create_mps_seat: "create-mps-seat";
    delete_mps_seat: "delete-mps-seat";
    poststop_mps_seat: "poststop-mps-seat";
    repair_mps_seat: "repair-mps-seat";
    run_limited: "run-limited";
    gc_restarting_mps_seat: "gc-restarting-mps-seat";
    prepare_claim: "prepare-claim";
    prepare_half_made_claim: "prepare-half-made-claim";
    gc_of_half_made_claim: "gc-of-half-made-claim";
    release_claim: "release-claim";
    release_claims: "release-claims";
    // Failure: a kill of `migctl apply` at any instruction
    apply: "apply";
    apply_modes: "apply-modes";
    / driver_is_not_asked:
    // Failure: runmig is killed anywhere in the create of a container with a claim
    create_with_claim: "create-with-claim";
    poststop_mps: "poststop-mps";
    delete_limited: "delete-limited";
    release_limited: "release-limited";
    / errors_only:
    // A step of these is one of the above.
    "poststop-damaged";
    "repair-beside-idle";
    // The low-level runtime fails a create whose hook is killed: `driver_level/failures`.
    "limit";
}
