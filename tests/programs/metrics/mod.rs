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
use runmig_lease::config::Config;
use runmig_lease::model::{GpuUuid, Placement};
use runmig_lease::store::{Claim, ClaimPod};
use runmig_lease::{ClaimPlace, Leases, NoBundles};
use std::time::Duration;
use testkit::{Low, Machine, Setup, unique};

/// A machine with two GPUs in MIG mode and two without MIG.
fn setup() -> Option<Setup> {
    let gpus = [
        "--gpu",
        "A100-80GB",
        "--count",
        "2",
        "--gpu",
        "L4",
        "--count",
        "2",
        "--mps",
    ];
    let setup = Setup::try_on(Low::Runc, Machine::with(&gpus))?;
    setup.configure("sharing.enforcement = [\"none\"]");
    Some(setup)
}

/// Creates a container in a pod of the namespace `team`, and returns its id.
fn create(setup: &Setup, pod: &str, name: &str, asked: &[(&str, &str)]) -> String {
    let (id, bundle) = (unique(), setup.bundle("exec sleep 1000"));
    let names = [
        ("io.kubernetes.cri.container-type", "container"),
        ("io.kubernetes.cri.container-name", name),
        ("io.kubernetes.cri.sandbox-name", pod),
        ("io.kubernetes.cri.sandbox-namespace", "team"),
        ("io.kubernetes.cri.sandbox-uid", pod),
        ("io.kubernetes.cri.sandbox-id", pod),
    ];
    for (key, value) in names.iter().chain(asked) {
        bundle.annotate(key, value);
    }
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    id
}

/// Gives a claim of the pod `train` a slice of the second GPU, as runmig-dra does.
fn claim(setup: &Setup) {
    let config = Config::read(&setup.config()).unwrap();
    let claim = Claim {
        uid: "claim-uid".to_owned(),
        namespace: "team".to_owned(),
        name: "train-gpu".to_owned(),
        request: "slice".to_owned(),
        pool: "runmig.node".to_owned(),
        device: "device".to_owned(),
        pods: vec![ClaimPod {
            uid: "pod-uid".to_owned(),
            name: "train".to_owned(),
        }],
    };
    let place = ClaimPlace {
        gpu: GpuUuid::new(setup.machine.gpu_uuid(1)),
        profile: "2g.20gb".to_owned(),
        placement: Placement { start: 0, size: 2 },
    };
    let manager = Leases::open(&config, Box::new(NoBundles)).unwrap();
    manager
        .prepare(claim, &place, Duration::ZERO, &|_| ())
        .unwrap();
}

/// Gives the machine a lease of every kind, and an instance of an administrator.
fn fill(setup: &Setup) {
    create(
        setup,
        "web",
        "one",
        &[("runmig.dev/slice", "1g.10gb"), ("runmig.dev/scope", "pod")],
    );
    create(
        setup,
        "web",
        "two",
        &[("runmig.dev/slice", "1g.10gb"), ("runmig.dev/scope", "pod")],
    );
    create(setup, "job", "alone", &[("runmig.dev/slice", "2g.20gb")]);
    create(
        setup,
        "seats",
        "left",
        &[("runmig.dev/slice", "3g.40gb"), ("runmig.dev/share", "1/4")],
    );
    create(
        setup,
        "seats",
        "right",
        &[("runmig.dev/slice", "3g.40gb"), ("runmig.dev/share", "1/2")],
    );
    create(setup, "infer", "a", &[("runmig.dev/share", "4Gi")]);
    create(setup, "infer", "b", &[("runmig.dev/share", "8Gi")]);
    create(setup, "whole", "main", &[("runmig.dev/gpu", "1")]);
    claim(setup);
    setup.machine.sim(
        "create",
        &["--gpu", "1", "--profile", "3g.40gb", "--start", "4"],
    );
}

#[track_caller]
fn metrics(setup: &Setup, arguments: &[&str]) -> Exposition {
    let all = [&["metrics"], arguments].concat();
    Exposition::read(&setup.migctl(&all).ok().stdout)
}
