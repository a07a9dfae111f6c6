//! Failing anywhere: every code that NVML has, at every call to the driver, of everything that makes
//! or gives back a slice. The calls are found by running the operation once.

mod faults_support;
mod support;

use faults_support::World;
use faults_support::strace::{Call, settled};
use nvml_sim::fault::Outcome;
use std::collections::BTreeMap;
use std::io::Write;

const ID: &str = "victim";
const CODES: std::ops::RangeInclusive<u32> = 1..=30;
const UNKNOWN: u32 = 999;

type Begin = fn(&World) -> Call;

fn create(world: &World) -> Call {
    world.create_command(ID).into()
}

fn create_from_idle(world: &World) -> Call {
    world.configure("keep_idle = \"5m\"");
    world.create("before");
    world.delete("before");
    create(world)
}

fn create_adopting(world: &World) -> Call {
    world.configure("adopt = true");
    world.admin_leaves(0, world.profile, 2);
    create(world)
}

fn hook(world: &World) -> Call {
    let lease = world.abandoned(ID);
    world.hook(ID, &lease)
}

fn delete(world: &World) -> Call {
    world.create(ID);
    world.behave("no-hooks");
    world.runmig(&["delete", "--force", ID]).into()
}

fn gc(world: &World) -> Call {
    world.abandoned(ID);
    world.migctl(&["gc"]).into()
}

fn every_code_at_every_call(name: &str, begin: Begin) {
    let world = World::small();
    let call = begin(&world);
    let calls = world.driver_calls(|| drop(settled(&call)));
    tidy_up(&world, "no fault");
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    for call in &calls {
        *times.entry(call).or_default() += 1;
    }
    assert!(times.len() > 5, "hardly a call was found: {times:?}");
    let (mut tried, mut failed) = (0, 0);
    let mut wrong = Vec::new();
    for (function, times) in times {
        for code in CODES.chain([UNKNOWN]) {
            // Not the first time each: so that more of a function's calls are tried.
            let nth = 1 + u64::from(code) % times;
            for outcome in outcomes(function, code) {
                let at = format!("{name}: {outcome:?} from {function}, the {nth}th of {times}");
                let call = begin(&world);
                world.fault(function, nth, Some(nth), outcome);
                let out = settled(&call);
                world.no_faults();
                tried += 1;
                failed += u32::from(!out.status.success());
                if let Err(e) = judge(&world, name, code, &out) {
                    wrong.push(format!("{at}: {e}"));
                }
                tidy_up(&world, &at);
            }
        }
    }
    let _ = writeln!(
        std::io::stderr(),
        "error matrix: {name}: {tried} failing calls, {failed} of them made it fail"
    );
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// A call that changes something may also have done so before it failed.
fn outcomes(function: &str, code: u32) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::Return(code)];
    // What says that there is no room has made nothing: that much the driver is trusted.
    let refused = function == "nvmlDeviceCreateGpuInstanceWithPlacement" && code == 23;
    if (function.contains("Create") || function.contains("Destroy")) && !refused {
        outcomes.push(Outcome::ReturnAfter(code));
    }
    outcomes
}

fn judge(world: &World, name: &str, code: u32, out: &support::Said) -> Result<(), String> {
    world.nothing_lost_nothing_given_twice()?;
    let hold = |it: bool, what: &str| it.then_some(()).ok_or_else(|| format!("{what}: {out:?}"));
    // Gone, and no MIG: both say that there is nothing; and a GPU that has no MIG is no failure.
    let cause = |text: &str| match code {
        3 | 6 => ["(NVML 3)", "(NVML 6)", "no MIG-capable GPU"]
            .iter()
            .any(|words| text.contains(words)),
        _ => text.contains(&format!("(NVML {code})")),
    };
    match (name, out.status.success()) {
        (create, true) if create.starts_with("create") => {
            let bare = world.living_init(ID).is_none() || world.uuid_in_bundle(ID).is_none();
            hold(!bare, "a bare container")?;
        }
        (create, false) if create.starts_with("create") => {
            let line = out.stderr.trim_end();
            let object = ["GPU", "driver library", "driver's version", "MIG device"];
            let names_it = object.iter().any(|o| line.contains(o));
            hold(
                line.lines().count() == 1 && cause(line) && names_it,
                "does not say what failed on what, and why",
            )?;
            hold(world.living_init(ID).is_none(), "failed, and runs")?;
        }
        // The engine hears what its low-level runtime says, and nothing of ours.
        ("hook" | "delete", succeeded) => hold(succeeded, "the engine is told")?,
        _ => {}
    }
    if !name.starts_with("create") && !world.instances().is_empty() {
        let lease = world.lease_of(ID);
        let error = lease["error"].as_str().unwrap_or_default();
        // A destroy that says "not there" of what is there is not believed.
        let why = cause(error) || error.contains("still there after the driver destroyed it");
        let said = why
            && (error.contains("GPU") || error.contains("driver library"))
            && lease["state"] == "quarantined";
        hold(said, &format!("not said in {lease}"))?;
    }
    Ok(())
}

fn tidy_up(world: &World, at: &str) {
    world.behave("");
    if world.living_init(ID).is_some() {
        world.delete(ID);
    }
    if let Some(lost) = world.lost_of_theirs() {
        panic!("{at}: an administrator's instance is gone: {lost}");
    }
    // What is kept, and what others left, goes too: nothing else may be there.
    world.configure("");
    world.admin_tidies_up();
    world.gc().ok();
    if let Err(e) = world.as_if_nothing_had_been() {
        panic!("{at}: {e}");
    }
}

#[test]
fn of_a_create() {
    every_code_at_every_call("create", create);
}

#[test]
fn of_a_create_that_takes_an_idle_slice() {
    every_code_at_every_call("create-from-idle", create_from_idle);
}

#[test]
fn of_a_create_that_adopts() {
    every_code_at_every_call("create-adopting", create_adopting);
}

#[test]
fn of_a_poststop_hook() {
    every_code_at_every_call("hook", hook);
}

#[test]
fn of_a_delete() {
    every_code_at_every_call("delete", delete);
}

#[test]
fn of_a_gc() {
    every_code_at_every_call("gc", gc);
}
