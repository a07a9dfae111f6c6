//! Compute instance profiles of one size: the plain one is made, and another where the driver refuses it.

use nvml_sim::engine::NvlProfile;
use testkit::prelude::*;

const PLAIN: u64 = 4;
const NVL: u64 = 8;
const CREATE: &str = "nvmlGpuInstanceCreateComputeInstance";

/// A machine whose driver lists profile 8 beside profile 4.
fn setup(gpu: &str) -> Setup {
    Setup::on(Low::Runc, Machine::with(&["--gpu", gpu, "--driver", "615"]))
}

/// Returns the compute instance profile of the only instance.
fn made(setup: &Setup) -> u64 {
    let machine = setup.machine.state();
    let [gi] = &machine.gpus[0].gpu_instances[..] else {
        panic!("{machine:?}")
    };
    let [ci] = &gi.compute_instances[..] else {
        panic!("{machine:?}")
    };
    ci.profile_id.into()
}

fn refuse_first(setup: &Setup, code: &str) {
    let first = ["--call", CREATE, "--nth", "1", "--returns", code];
    setup.sim("fault", &first);
}

#[test]
fn plain_one_comes_first() {
    for (gpu, profile) in [("A100-80GB", "7g.80gb"), ("H100-80GB", "7g.80gb")] {
        let setup = setup(gpu);
        let id = setup.gives(&[("runmig.dev/slice", profile)]);
        assert_eq!(made(&setup), PLAIN, "{gpu}");
        setup.ends(&[&id]);
        setup.nothing_is_left();
    }
}

/// Failure: the driver lists a compute instance profile that the GPU cannot have
#[test]
fn next_one_comes_after_refusal() {
    for code in [
        "NOT_SUPPORTED",
        "INVALID_ARGUMENT",
        "INSUFFICIENT_RESOURCES",
    ] {
        let setup = setup("H100-80GB");
        refuse_first(&setup, code);
        let id = setup.gives(&[("runmig.dev/slice", "7g.80gb")]);
        assert_eq!(made(&setup), NVL, "{code}");
        setup.ends(&[&id]);
        setup.nothing_is_left();
    }
}

#[test]
fn other_failure_ends_it() {
    let setup = setup("H100-80GB");
    refuse_first(&setup, "IN_USE");
    let line = setup.refused(&setup.bundle_with(&[("runmig.dev/slice", "7g.80gb")]));
    has(&line, "(NVML 19)");
    setup.nothing_is_left();
}

/// Failure: the driver refuses every compute instance profile of a size
#[test]
fn first_refusal_is_told() {
    let setup = setup("A100-80GB");
    refuse_first(&setup, "INVALID_ARGUMENT");
    let line = setup.refused(&setup.bundle_with(&[("runmig.dev/slice", "7g.80gb")]));
    has(&line, "invalid argument (NVML 2)");
    setup.nothing_is_left();
}

#[test]
fn profile_of_count_0_is_none() {
    let setup = setup("H100-80GB");
    let machine = &setup.machine;
    machine.change(|machine| machine.gpus[0].nvl = Some(NvlProfile::Empty));
    setup.sim("trace", &["on"]);
    refuse_first(&setup, "NOT_SUPPORTED");
    let line = setup.refused(&setup.bundle_with(&[("runmig.dev/slice", "7g.80gb")]));
    has(&line, "not supported (NVML 3)");
    let trace = setup.sim("trace", &["show"]);
    let creates = trace.lines().filter(|line| line.contains(CREATE));
    assert_eq!(creates.count(), 1, "{trace}");
    setup.nothing_is_left();
}
