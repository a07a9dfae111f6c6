//! Every code that NVML has, at every call to the driver.

use crate::error_matrix::{empty, judge, report, tidy_up};
use testkit::faults::operations::{HOLDER, Kind, Operation, PEER};
use testkit::faults::own_calls;
use testkit::prelude::*;
use testkit::random::Sample;

const CODES: std::ops::RangeInclusive<u32> = 1..=30;
const UNKNOWN: u32 = 999;

/// Which calls of each function are the operation's own.
fn calls(world: &World, operation: &Operation) -> BTreeMap<String, Vec<u64>> {
    let call = operation.begin(world);
    let calls = world.driver_calls_by(|| drop(settled(&call)));
    tidy_up(world, "no fault");
    empty(world, "no fault");
    let mut own: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (function, nth) in own_calls(calls) {
        own.entry(function).or_default().push(nth);
    }
    own
}

/// The codes that the product tells apart: no permission, not found, not supported, lost, in use,
/// no room.
const TOLD_APART: [u32; 6] = [3, 4, 6, 15, 19, 23];

/// Every code at every function.
pub fn every_code(operation: &Operation) {
    let codes = |own: &[u64]| {
        let all = CODES.chain([UNKNOWN]);
        // Not the first time each: so that more of a function's calls are tried.
        all.map(|code| (own[code as usize % own.len()], code))
            .collect()
    };
    tried(operation, codes);
}

/// Every code at every call about MIG modes that changes one, and those that are told apart at the others. For what is made of
/// the same calls as the others, and these.
pub fn every_mode(operation: &Operation) {
    let all: Vec<u32> = CODES.chain([UNKNOWN]).collect();
    for (function, codes) in [
        ("nvmlDeviceGetMigMode", &TOLD_APART[..]),
        ("nvmlDeviceSetMigMode", &all),
    ] {
        let of = |nth: &u64| {
            { codes.iter() }
                .map(|code| (*nth, *code))
                .collect::<Vec<_>>()
        };
        let each = |own: &[u64]| own.iter().flat_map(of).collect();
        tried_of(|name| name == function, operation, each);
    }
}

/// Every call, with one code after the other; and those that are told apart at every function. For what
/// is made of the same calls as the others.
pub fn every_call(operation: &Operation) {
    let mut next = CODES.cycle();
    tried(operation, |own| {
        let each = own.iter().map(|nth| (*nth, next.next().unwrap_or(UNKNOWN)));
        let mut all: Vec<(u64, u32)> = each.collect();
        let apart = TOLD_APART.iter().zip(own.iter().cycle());
        all.extend(apart.map(|(code, nth)| (*nth, *code)));
        all
    });
}

fn tried(operation: &Operation, which: impl FnMut(&[u64]) -> Vec<(u64, u32)>) {
    tried_of(|_| true, operation, which);
}

fn tried_of(
    is_asked: impl Fn(&str) -> bool,
    operation: &Operation,
    mut which: impl FnMut(&[u64]) -> Vec<(u64, u32)>,
) {
    let world = operation.world();
    let mut calls = calls(&world, operation);
    assert!(calls.len() > 3, "hardly a call was found: {calls:?}");
    calls.retain(|name, _| is_asked(name));
    assert!(!calls.is_empty(), "none of the functions is called");
    let mut sample = Sample::of(operation.name);
    let (mut tried, mut failed) = (0, 0);
    let mut wrong = Vec::new();
    for (function, own) in &calls {
        for (nth, code) in which(own) {
            if !sample.takes() {
                continue;
            }
            for outcome in outcomes(function, code) {
                let name = operation.name;
                let at = format!("{name}: {outcome:?} from {function}, the {nth}th");
                let call = operation.begin(&world);
                let _ = std::fs::remove_file(log(&world));
                world.fault(function, nth, Some(nth), outcome);
                let out = settled(&call);
                world.no_faults();
                tried += 1;
                failed += usize::from(!out.status.success());
                let judged = judge(&world, operation, &out, |line| says(line, code))
                    .and_then(|()| quarantined(&world, operation, code));
                if let Err(e) = judged {
                    wrong.push(format!("{at}: {e}"));
                }
                tidy_up(&world, &at);
                empty(&world, &at);
            }
        }
    }
    report(operation, "driver calls", tried, failed, &wrong);
}

/// A call that changes something may also have done so before it failed.
fn outcomes(function: &str, code: u32) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::Return(code)];
    // A call that answers "no room" has made nothing: that much the driver is trusted.
    let refused = function == "nvmlDeviceCreateGpuInstanceWithPlacement" && code == 23;
    let changes = ["Create", "Destroy", "SetMigMode"];
    if changes.iter().any(|verb| function.contains(verb)) && !refused {
        outcomes.push(Outcome::ReturnAfter(code));
    }
    outcomes
}

/// Gone, and no MIG: both say that there is nothing; and a GPU that has no MIG, or not that profile, is
/// no failure.
fn is_cause(text: &str, code: u32) -> bool {
    match code {
        3 | 6 => [
            "(NVML 3)",
            "(NVML 6)",
            "no GPU supports MIG",
            "no GPU offers the profile",
            "has no profile",
            "has no MIG",
            // A GPU without MIG or profile cannot have the same.
            "of the same pod has a",
            // The device of a claim names one GPU.
            "GPU 0 is not in MIG mode",
            "GPU 0 has no ",
            // A compute instance that the driver denies keeps its GPU instance in use.
            "in use by another client (NVML 19)",
            // An apply adds a compute instance that the driver denies, and there is no room for it.
            "insufficient resources (NVML 23)",
            // The mode of a GPU without MIG is not the new one.
            "has its old mode after the reset",
            // Nor has a GPU the room of a profile that it lacks.
            "cannot hold",
        ]
        .iter()
        .any(|words| text.contains(words)),
        // It ends the list of profiles.
        2 => ["(NVML 2)", "cannot hold", "has no profile", "(NVML 23)"]
            .iter()
            .any(|words| text.contains(words)),
        _ => text.contains(&format!("(NVML {code})")),
    }
}

/// A destroy that says "not there" of what is there is not believed.
fn is_told(text: &str, code: u32) -> bool {
    is_cause(text, code) || text.contains("still there after the driver destroyed it")
}

fn says(line: &str, code: u32) -> bool {
    let objects = "GPU|of the same pod|driver library|driver's version|MIG device";
    is_told(line, code) && objects.split('|').any(|object| line.contains(object))
}

fn log(world: &World) -> PathBuf {
    world.state().join("runmig.log")
}

/// An instance that could not be destroyed stays on record, with the reason.
fn quarantined(world: &World, operation: &Operation, code: u32) -> Result<(), String> {
    if !matches!(operation.kind, Kind::Delete | Kind::Collect) {
        return Ok(());
    }
    for lease in world.leases() {
        // A claim keeps its lease.
        let is_kept = lease["state"] != "quarantined" && lease["claim"].is_object();
        if is_kept || [PEER, HOLDER].iter().any(|id| lease["container"] == **id) {
            continue;
        }
        let error = lease["error"].as_str().unwrap_or_default();
        let said = is_told(error, code)
            && (error.contains("GPU") || error.contains("driver library"))
            && lease["state"] == "quarantined";
        if !said {
            return Err(format!("not said in {lease}"));
        }
    }
    Ok(())
}
