//! A lease to try, and that nothing else touches a GPU.

use super::{Diagnosis, setup};
use testkit::prelude::*;

/// The calls that change a GPU, by their names.
fn changing(setup: &Setup) -> Vec<String> {
    let trace = setup.sim("trace", &["show"]);
    let words = ["Create", "Destroy", "Set"];
    let changes = |line: &&str| words.iter().any(|word| line.contains(word));
    trace.lines().filter(changes).map(str::to_owned).collect()
}

/// Returns the text of the trial, which is well.
fn trial(seen: &Diagnosis) -> &str {
    let mut items = seen.items.iter();
    let item = items.find(|item| item["id"] == "trial.lease").unwrap();
    item["text"].as_str().unwrap()
}

/// A node of the slice that does not open is the finding, and the slice goes all the same.
#[test]
fn names_missing_node_of_slice() {
    let setup = setup();
    let caps = setup.machine.dir().join("dev/nvidia-caps");
    let bad = format!("mount -t tmpfs -o nodev none {}", caps.display());
    let seen = Diagnosis::inside(&setup, &bad, &["--only=host", "--slice=1g.10gb"]);
    let unwell = seen.items.iter().filter(|item| item["id"] == "trial.lease");
    let unwell: Vec<&Value> = unwell.map(|item| &item["status"]).collect();
    assert_eq!(unwell, ["fail"; 2]);
    setup.nothing_is_left();
}

#[test]
fn tells_why_a_trial_fails() {
    let setup = setup();
    let seen = Diagnosis::of(&setup, &["--only=host", "--slice=9g.90gb"]);
    assert_eq!(seen.code, Some(1));
    has(&seen.of_id("trial.lease").0, "9g.90gb");
    setup.fault("nvmlGpuInstanceCreateComputeInstance", "UNKNOWN");
    let seen = Diagnosis::of(&setup, &["--only=host", "--slice=1g.10gb"]);
    has(&seen.of_id("trial.lease").0, "unknown error (NVML 999)");
    assert_eq!(setup.machine.instances(), []);
}

#[test]
fn takes_and_releases_a_gpu() {
    let setup = Setup::with("--gpu A100-80GB --count 1 --mig off", "");
    let seen = Diagnosis::of(&setup, &["--only=host", "--gpu=1"]);
    assert_eq!(seen.code, Some(0), "{:?}", seen.items);
    begins_with(trial(&seen), "1 was made in ");
    assert_eq!(setup.leases().len(), 0);
}

/// The checks alone touch no GPU.
#[test]
fn makes_and_releases_a_slice() {
    let setup = setup();
    setup.sim("trace", &["on"]);
    Diagnosis::of(&setup, &[]);
    assert_eq!(changing(&setup), Vec::<String>::new());
    let seen = Diagnosis::of(&setup, &["--only=host", "--slice=1g.10gb"]);
    assert_eq!(seen.code, Some(0), "{:?}", seen.items);
    begins_with(trial(&seen), "1g.10gb was made in ");
    assert!(!changing(&setup).is_empty());
    setup.nothing_is_left();
}
