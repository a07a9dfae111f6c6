//! migctl metrics: real parsers read it, and it agrees with the other views.

mod agrees;
mod bad_input;
mod board;
mod counted;
mod http;
mod parsers;
mod prometheus;
mod reading;
mod rest;
mod textfile;

use reading::Exposition;
use runmig_lease::store::Claim;
use testkit::claims;
use testkit::prelude::*;

/// A machine with two GPUs in MIG mode and two without MIG.
fn setup() -> Setup {
    let machine = Machine::of("--gpu A100-80GB --count 2 --gpu L4 --count 2 --mps");
    let setup = Setup::on(Low::Runc, machine);
    setup.configure("sharing.enforcement = [\"none\"]");
    setup
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
    let (small, half) = (
        ("runmig.dev/slice", "1g.10gb"),
        ("runmig.dev/slice", "3g.40gb"),
    );
    let asks = |asked: &[(&str, &str)], pod, name| create(setup, pod, name, asked);
    for name in ["one", "two"] {
        asks(&[small, ("runmig.dev/scope", "pod")], "web", name);
    }
    asks(&[("runmig.dev/slice", "2g.20gb")], "job", "alone");
    asks(&[half, ("runmig.dev/share", "1/4")], "seats", "left");
    asks(&[half, ("runmig.dev/share", "1/2")], "seats", "right");
    create(setup, "infer", "a", &[("runmig.dev/share", "4Gi")]);
    create(setup, "infer", "b", &[("runmig.dev/share", "8Gi")]);
    create(setup, "whole", "main", &[("runmig.dev/gpu", "1")]);
    claim(setup);
    setup.sim(
        "create",
        &["--gpu", "1", "--profile", "3g.40gb", "--start", "4"],
    );
}

#[track_caller]
fn metrics(setup: &Setup, arguments: &[&str]) -> Exposition {
    let all = [&["metrics"], arguments].concat();
    Exposition::read(&setup.tells(&all))
}
