//! Failing anywhere: every call to the driver, and every call about a file of ours, of everything that
//! makes or releases a slice. The calls are found by running the operation once.

mod driver;

use testkit::faults::operations::{
    HOLDER, ID, Kind, Operation, PEER, damage_is_mended, each_once, is_in_place,
    next_apply_succeeds, way_is_made, what_stays_goes,
};
use testkit::prelude::*;

/// Judges the machine after an operation that failed in some place. `says` knows what its message
/// has to say.
fn judge(
    world: &World,
    operation: &Operation,
    out: &Said,
    says: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let hold = |it: bool, what: &str| it.then_some(()).ok_or_else(|| format!("{what}: {out:?}"));
    let succeeded = out.status.success();
    let line = out.stderr.trim_end();
    match operation.kind {
        Kind::Create if succeeded => {
            hold(world.living_init(ID).is_some(), "succeeds, and runs not")?;
            world.has_its_slices(ID)?;
        }
        Kind::Create | Kind::Refused => {
            let is_one_line = line.lines().count() == 1 && says(line);
            hold(is_one_line, "does not say what failed on what, and why")?;
            hold(!succeeded, "succeeds")?;
            hold(world.living_init(ID).is_none(), "failed, and runs")?;
        }
        Kind::Limit => {
            hold(succeeded != says(line), "does not say what failed")?;
            if succeeded {
                world.has_its_slices(ID)?;
            }
        }
        Kind::Apply if succeeded => is_in_place(world)?,
        Kind::Apply => hold(says(line), "does not say what failed")?,
        Kind::Delete => hold(succeeded, "the engine is told")?,
        // A table says of what it failed, or a line that it did at once.
        Kind::Collect => hold(
            succeeded || says(&out.stdout) || says(line),
            "does not say what failed",
        )?,
    }
    damage_is_mended(world);
    for other in [PEER, HOLDER] {
        if world.living_init(other).is_some() {
            world.has_its_slices(other)?;
        }
    }
    world.nothing_lost_nothing_given_twice()
}

fn tidy_up(world: &World, at: &str) {
    world.note_daemons();
    world.behave("");
    way_is_made(world);
    next_apply_succeeds(world).unwrap_or_else(|e| panic!("{at}: {e}"));
    for id in [ID, PEER, HOLDER] {
        if world.living_init(id).is_some() {
            world.delete(id);
        }
    }
    what_stays_goes(world, false).unwrap_or_else(|e| panic!("{at}: {e}"));
    world.gc().ok();
}

fn empty(world: &World, at: &str) {
    if let Err(e) = world.as_if_nothing_had_been() {
        panic!("{at}: {e}");
    }
}

fn report(operation: &Operation, what: &str, tried: usize, failed: usize, wrong: &[String]) {
    // Past the harness, which keeps what a passing test prints.
    let _ = writeln!(
        std::io::stderr(),
        "error matrix: {}: {tried} failing {what}, {failed} of them made it fail",
        operation.name
    );
    let (count, lines) = (wrong.len(), wrong.join("\n"));
    assert!(wrong.is_empty(), "{count} wrong:\n{lines}");
}

macro_rules! matrix {
    ($($full:ident: $every:literal;)*
     / every_call: $($test:ident: $name:literal;)*
     / modes: $($mode:ident: $switches:literal;)*
     / driver_is_not_asked: $($not:ident: $of:literal;)*
     / crashes_only: $($other:literal;)*) => {
        mod of_the_driver {
            use testkit::faults::operations::named;
            $(#[test] fn $full() { crate::error_matrix::driver::every_code(named($every)); })*
            $(#[test] fn $test() { crate::error_matrix::driver::every_call(named($name)); })*
            $(#[test] fn $mode() { crate::error_matrix::driver::every_mode(named($switches)); })*
        }
        #[test]
        fn covers_every_operation() {
            each_once(&[$($every,)* $($name,)* $($switches,)* $($of,)* $($other),*]);
        }
    };
}

matrix! {
    // Failure: any call answers any code during a create
    create: "create";
    // Failure: a destroy answers "not there", and the driver still lists the instance
    // Failure: the engine has a narrow umask, during a hook, `delete` or `gc`
    poststop: "poststop";
    delete: "delete";
    gc: "gc";
    prepare_claim: "prepare-claim";
    / every_call:
    create_from_cache: "create-from-cache";
    poststop_damaged: "poststop-damaged";
    repair: "repair";
    repair_beside_idle: "repair-beside-idle";
    // Failure: the driver answers any code to a waiting create, before or after its wake-up
    wait: "wait";
    create_mps: "create-mps";
    create_limited: "create-limited";
    create_limited_beside: "create-limited-beside";
    // Failure: any call answers any code while the hook limits a share at `driver`
    limit: "limit";
    // Failure: any call answers any code while `gc` looks for processes around MPS
    gc_restarting_mps: "gc-restarting-mps";
    gc_setting_limit_back: "gc-setting-limit-back";
    create_mps_seat: "create-mps-seat";
    delete_mps_seat: "delete-mps-seat";
    poststop_mps_seat: "poststop-mps-seat";
    repair_mps_seat: "repair-mps-seat";
    prepare_half_made_claim: "prepare-half-made-claim";
    gc_of_half_made_claim: "gc-of-half-made-claim";
    release_claims: "release-claims";
    // Failure: the driver fails a call of `apply`
    apply: "apply";
    / modes:
    // Failure: the driver says in the middle of an apply that a GPU has no MIG mode
    apply_modes: "apply-modes";
    / driver_is_not_asked:
    create_with_claim: "create-with-claim";
    poststop_mps: "poststop-mps";
    delete_limited: "delete-limited";
    / crashes_only:
    // Their calls are those of the others.
    "create-that-fails";
    "run";
    "release";
    "run-limited";
    "gc-restarting-mps-seat";
    "release-limited";
    "release-claim";
}
