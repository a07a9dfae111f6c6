//! A lease to try, and that nothing else touches a GPU.

use super::{Diagnosis, setup};
use testkit::{Low, Machine, Setup};

/// The calls that change a GPU, by their names.
fn changing(setup: &Setup) -> Vec<String> {
    let trace = setup.machine.sim("trace", &["show"]);
    let changes = |line: &&str| {
        ["Create", "Destroy", "Set"]
            .iter()
            .any(|word| line.contains(word))
    };
    trace.lines().filter(changes).map(str::to_owned).collect()
}

#[test]
fn makes_and_releases_a_slice() {
    let Some(setup) = setup() else { return };
    let seen = Diagnosis::of(&setup, &["--only=trial", "--slice=1g.10gb"]);
    assert_eq!(seen.code, Some(0), "{:?}", seen.items);
    let ids: Vec<&str> = seen
        .items
        .iter()
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["trial.node", "trial.node", "trial.lease"]);
    assert_eq!(setup.machine.instances(), []);
    assert_eq!(setup.leases().len(), 0);
}

#[test]
fn tells_why_a_trial_fails() {
    let Some(setup) = setup() else { return };
    let seen = Diagnosis::of(&setup, &["--only=trial", "--slice=9g.90gb"]);
    assert_eq!(seen.code, Some(1));
    let (text, _) = seen.of_id("trial.lease");
    assert!(text.contains("9g.90gb"), "{text}");
    let call = "nvmlGpuInstanceCreateComputeInstance";
    setup
        .machine
        .sim("fault", &["--call", call, "--returns", "UNKNOWN"]);
    let seen = Diagnosis::of(&setup, &["--only=trial", "--slice=1g.10gb"]);
    assert!(
        seen.of_id("trial.lease")
            .0
            .contains("unknown error (NVML 999)"),
        "{:?}",
        seen.items
    );
    assert_eq!(setup.machine.instances(), []);
}

#[test]
fn takes_and_releases_a_gpu() {
    let machine = Machine::with(&["--gpu", "A100-80GB", "--count", "1", "--mig", "off"]);
    let Some(setup) = Setup::on(Low::Runc, machine) else {
        return;
    };
    let seen = Diagnosis::of(&setup, &["--only=trial", "--gpu=1"]);
    assert_eq!(
        (seen.code, seen.ids("ok").len()),
        (Some(0), 1),
        "{:?}",
        seen.items
    );
    assert_eq!(setup.leases().len(), 0);
}

#[test]
fn checks_alone_touch_no_gpu() {
    let Some(setup) = setup() else { return };
    setup.machine.sim("trace", &["on"]);
    Diagnosis::of(&setup, &[]);
    assert_eq!(changing(&setup), Vec::<String>::new());
    Diagnosis::of(&setup, &["--only=trial", "--slice=1g.10gb"]);
    assert!(!changing(&setup).is_empty());
}
