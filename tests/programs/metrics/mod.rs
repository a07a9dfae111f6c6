//! migctl metrics under Prometheus. Whatever needs none of its programs is in tests/sessions.

mod board;
mod parsers;
mod prometheus;
mod reading;
mod rest;

use runmig_lease::store::Claim;
use testkit::claims;
use testkit::prelude::*;

const NONE: &str = "sharing.enforcement = [\"none\"]";
const SLICE: &[(&str, &str)] = &[("runmig.dev/slice", "1g.10gb")];

/// A machine with two GPUs in MIG mode and two without MIG.
fn setup() -> Setup {
    Setup::with("--gpu A100-80GB --count 2 --gpu L4 --count 2 --mps", NONE)
}

/// Creates a container in a pod of the namespace `team`, and returns its id.
fn create(setup: &Setup, pod: &str, name: &str, asked: &[(&str, &str)]) -> String {
    setup.in_pod("team", pod, name, asked)
}

/// Gives a claim of the pod `train` a slice of the second GPU, as runmig-dra does.
fn claim(setup: &Setup) {
    let claim = Claim {
        namespace: "team".to_owned(),
        ..claims::claim("train")
    };
    let at = claims::place(&setup.machine.gpu_uuid(1), "2g.20gb", 0, 2);
    claims::prepare(&setup.config(), claim, &at);
}

/// Gives the machine a lease of every kind, and an instance of an administrator.
fn fill(setup: &Setup) {
    let half = ("runmig.dev/slice", "3g.40gb");
    for (pod, name, asked) in testkit::rows! {
        "web", "one" => &[SLICE[0], ("runmig.dev/scope", "pod")][..];
        "web", "two" => &[SLICE[0], ("runmig.dev/scope", "pod")];
        "job", "alone" => &[("runmig.dev/slice", "2g.20gb")];
        "seats", "left" => &[half, ("runmig.dev/share", "1/4")];
        "seats", "right" => &[half, ("runmig.dev/share", "1/2")];
        "infer", "a" => &[("runmig.dev/share", "4Gi")];
        "infer", "b" => &[("runmig.dev/share", "8Gi")];
        "whole", "main" => &[("runmig.dev/gpu", "1")];
    } {
        create(setup, pod, name, asked);
    }
    claim(setup);
    let foreign = ["--gpu", "1", "--profile", "3g.40gb", "--start", "4"];
    setup.sim("create", &foreign);
}
