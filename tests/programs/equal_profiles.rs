//! Compute instance profiles of one size: the plain one is made, and another where the driver refuses it.

use nvml_sim::engine::NvlProfile;
use testkit::prelude::*;

const PLAIN: u64 = 4;
const NVL: u64 = 8;
const WHOLE: &[(&str, &str)] = &[("runmig.dev/slice", "7g.80gb")];
const CREATE: &str = "nvmlGpuInstanceCreateComputeInstance";

/// A machine whose driver lists profile 8 beside profile 4.
fn setup(gpu: &str) -> Setup {
    Setup::on(Low::Runc, Machine::with(&["--gpu", gpu, "--driver", "615"]))
}

/// Returns the compute instance profile of the only instance.
fn made(setup: &Setup) -> u64 {
    let machine = setup.machine.state();
    let instances = &machine.gpus[0].gpu_instances;
    assert_eq!(instances.len(), 1, "{instances:?}");
    let parts = &instances[0].compute_instances;
    assert_eq!(parts.len(), 1, "{instances:?}");
    parts[0].profile_id.into()
}

fn refuse_first(setup: &Setup, code: &str) {
    let first = ["--call", CREATE, "--nth", "1", "--returns", code];
    setup.sim("fault", &first);
}

#[test]
fn plain_one_comes_first() {
    for gpu in ["A100-80GB", "H100-80GB"] {
        let setup = setup(gpu);
        let id = setup.gives(WHOLE);
        assert_eq!(made(&setup), PLAIN, "{gpu}");
        setup.ends(&[&id]);
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
        let id = setup.gives(WHOLE);
        assert_eq!(made(&setup), NVL, "{code}");
        setup.ends(&[&id]);
    }
}

/// Another failure ends it, and on a GPU without another profile the first refusal does.
/// Failure: the driver refuses every compute instance profile of a size
#[test]
fn first_refusal_is_told() {
    for (gpu, code, words) in [
        ("H100-80GB", "IN_USE", "(NVML 19)"),
        ("A100-80GB", "INVALID_ARGUMENT", "invalid argument (NVML 2)"),
    ] {
        let setup = setup(gpu);
        refuse_first(&setup, code);
        setup.refuses(WHOLE, words);
        setup.nothing_is_left();
    }
}

#[test]
fn profile_of_count_0_is_none() {
    let setup = setup("H100-80GB");
    let machine = &setup.machine;
    machine.change(|machine| machine.gpus[0].nvl = Some(NvlProfile::Empty));
    setup.sim("trace", &["on"]);
    refuse_first(&setup, "NOT_SUPPORTED");
    setup.refuses(WHOLE, "not supported (NVML 3)");
    let trace = setup.sim("trace", &["show"]);
    let creates = trace.lines().filter(|line| line.contains(CREATE));
    assert_eq!(creates.count(), 1, "{trace}");
    setup.nothing_is_left();
}
