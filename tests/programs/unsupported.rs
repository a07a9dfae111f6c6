//! GPUs that do not support a call of the driver, as those that share the memory of the machine: each call costs one
//! feature, never a view.

use testkit::prelude::*;

const GPU: &str = "runmig.dev/gpu";
const SHARE: &str = "runmig.dev/share";
const MEMORY: &str = "nvmlDeviceGetMemoryInfo_v2";

const LOOKS: [&[&str]; 7] = [
    &["gpus"],
    &["gpus", "-o", "json"],
    &["inspect"],
    &["list"],
    &["top", "--once"],
    &["metrics"],
    &["explain", "1g.10gb"],
];

const NONE: &str = "sharing.enforcement = [\"none\"]";

fn setup() -> Setup {
    Setup::with("--gpu A100-80GB --gpu L4", NONE)
}

#[test]
fn gives_gpu_without_memory_figure() {
    let setup = setup();
    setup.fault(MEMORY, "NOT_SUPPORTED");
    let explained = setup.tells(&["explain", "--gpu", "1"]);
    has(&explained, "1     -            free");
    let line = setup.refuses(
        &[(SHARE, "1Gi")],
        "cannot allocate a share of 1Gi: no GPU has room",
    );
    let why = "so no part of it can be booked";
    has(
        &line,
        &format!("GPU 1: the driver does not tell how much memory it has, {why}"),
    );
    setup
        .migctl(&["explain", "--share", "1Gi"])
        .exits(1)
        .says(why);
    let whole = setup.gives(&[(GPU, "1")]);
    assert_eq!(setup.the_lease()["memoryBytes"], Value::Null);
    for look in LOOKS {
        setup.migctl(look).ok();
    }
    setup.ends(&[&whole]);
}

#[test]
fn hints_at_whole_gpu_without_memory_figure() {
    let setup = Setup::with("--gpu L4", NONE);
    setup.fault(MEMORY, "NOT_SUPPORTED");
    let line = setup.refuses(&[(SHARE, "1Gi")], "cannot allocate a share");
    ends_with(&line, "hint: ask for a whole GPU (runmig.dev/gpu)");
}

#[test]
fn limit_of_memory_keeps_from_gpu_without_figure() {
    let setup = setup();
    setup.configure("[[policy.limit]]\nmemory = \"100Gi\"");
    setup.fault(MEMORY, "NOT_SUPPORTED");
    let why = "GPU 1: a limit counts memory, and the driver does not tell how much this GPU has";
    setup.refuses(&[(GPU, "1")], why);
    setup.no_faults();
    let whole = setup.gives(&[(GPU, "1")]);
    setup.ends(&[&whole]);
}

/// The calls that views make, beside those by which runmig knows a GPU at all.
#[test]
fn unsupported_call_costs_no_view() {
    let setup = setup();
    let slice = setup.gives(&[("runmig.dev/slice", "1g.10gb")]);
    for call in [
        "nvmlDeviceGetComputeMode",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetGpuInstanceRemainingCapacity",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        MEMORY,
        "nvmlDeviceGetName",
        "nvmlDeviceGetPciInfo_v3",
    ] {
        setup.fault(call, "NOT_SUPPORTED");
        for look in LOOKS {
            let said = setup.migctl(look);
            assert!(said.status.success(), "{call}: {look:?}: {}", said.stderr);
        }
        setup.no_faults();
    }
    setup.ends(&[&slice]);
}
