//! Several whole GPUs for one container: those that are near each other.

use testkit::prelude::*;

const GPU: &str = "runmig.dev/gpu";

fn setup(more: &str) -> Setup {
    let machine = format!("--gpu L4 --count 4 {more}");
    Setup::with(&machine, "policy.gpus_per_container = 4")
}

/// Returns the indexes of the GPUs that a container gets, and what `migctl explain` said before.
fn gets(setup: &Setup, count: &str) -> (Vec<u64>, String) {
    let explained = setup.tells(&["explain", "--gpu", count]);
    let id = setup.gives(&[(GPU, count)]);
    let index = |lease: &Value| lease["gpuIndex"].as_u64().unwrap();
    let mut found: Vec<u64> = setup.leases().iter().map(index).collect();
    found.sort_unstable();
    setup.ends(&[&id]);
    (found, explained.lines().next().unwrap().to_owned())
}

#[test]
fn numa_node_decides() {
    let setup = setup("--numa 0,1,2,1");
    let (gpus, told) = gets(&setup, "2");
    assert_eq!(gpus, [1, 3]);
    let wanted = "fits: GPU 1 (NVIDIA L4) and GPU 3 (NVIDIA L4), on one NUMA node";
    assert_eq!(told, wanted);
    let (gpus, told) = gets(&setup, "3");
    assert_eq!(gpus, [0, 1, 3]);
    ends_with(&told, ", not all near each other");
}

#[test]
fn nvlink_decides_before_numa_node() {
    let setup = setup("--numa 0,0,1,1 --nvlink 0,1,2,1");
    let (gpus, told) = gets(&setup, "2");
    assert_eq!(gpus, [1, 3]);
    ends_with(&told, ", connected by NVLink");
}

/// Failure: the driver does not tell how near its GPUs are
#[test]
fn index_decides_without_answer() {
    for code in ["NOT_SUPPORTED", "UNKNOWN"] {
        let setup = setup("--numa 0,1,2,1 --nvlink 0,1,2,1");
        setup.fault("nvmlDeviceGetP2PStatus", code);
        setup.fault("nvmlDeviceGetTopologyCommonAncestor", code);
        assert_eq!(gets(&setup, "2").0, [0, 1], "{code}");
    }
}

#[test]
fn one_gpu_asks_nothing_more() {
    let setup = setup("--numa 0,1,2,1");
    setup.sim("trace", &["on"]);
    assert_eq!(gets(&setup, "1").0, [0]);
    let calls = setup.sim("trace", &["show"]);
    assert!(!calls.contains("P2PStatus") && !calls.contains("Topology"));
}
