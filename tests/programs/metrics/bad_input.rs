//! Hostile names, a ledger and a driver that fail.

use super::parsers::accepted;
use super::*;

const UP: &str = "runmig_driver_up";

/// A container chooses its names. They are cut where they are too long, and each slice keeps its series.
#[test]
fn hostile_names_keep_exposition_valid() {
    let setup = setup();
    let long = "x".repeat(4 << 10);
    let [one, two] = ["1", "2"].map(|end| format!("{long}{end}"));
    let names = ["a\"b\\c\nd", "e\u{1b}[2J", &one, &two];
    for name in names {
        create(&setup, name, name, SLICE);
    }
    let said = accepted(setup.migctl(&["metrics"]).ok());
    let seen = Exposition::read(&said.stdout);
    let infos = seen.of("runmig_lease_info");
    let mut pods: Vec<&str> = infos.iter().map(|series| series.label("pod")).collect();
    pods.sort_unstable();
    assert_eq!((pods.len(), pods[0]), (4, names[0]));
    begins_with(pods[1], "e\\u{1b}[2J~");
    assert!(pods[2..].iter().all(|pod| pod.len() < 300));
    assert_eq!(seen.of("runmig_slice_info").len(), 4 + 2);
    lacks(&said.stdout, "\u{1b}");
}

/// Every family of the driver's is absent, and the ledger's stay.
/// Failure: the driver fails or hangs during `migctl metrics`
#[test]
fn ledger_stays_without_driver() {
    let setup = setup();
    create(&setup, "web", "main", SLICE);
    fs::remove_file(setup.machine.library()).unwrap();
    let said = accepted(setup.migctl(&["metrics"]).exits(1));
    said.warns("hint: install the NVIDIA driver");
    let seen = Exposition::read(&said.stdout);
    seen.has(UP, &[], 0.0);
    let web = [("pod", "web"), ("state", "leased")];
    seen.has("runmig_slice_info", &web, 1.0);
    for family in ["runmig_gpu_info", "runmig_slice_memory_bytes"] {
        assert!(seen.of(family).is_empty(), "{family}");
    }
    let alone = setup.migctl(&["metrics", "--no-driver"]).ok();
    assert!(Exposition::read(&alone.stdout).of(UP).is_empty());
}

#[test]
fn names_gpus_beside_lost_one() {
    let setup = setup();
    create(&setup, "web", "main", SLICE);
    let uuid = setup.the_lease()["gpuUUID"].as_str().unwrap().to_owned();
    let index = setup.the_lease()["gpuIndex"].to_string();
    setup.sim("lose", &["--gpu", &index]);
    let seen = accepted(setup.migctl(&["metrics"]).exits(1)).stdout;
    let seen = Exposition::read(&seen);
    seen.has(UP, &[], 0.0);
    assert_eq!(seen.of("runmig_gpu_info").len(), 3);
    seen.has("runmig_slice_info", &[("UUID", &uuid), ("pod", "web")], 1.0);
}

/// Nothing tells then which places are taken, so no family of the ledger says that they are free. Counters and leases are
/// of one moment, so it has no counters either.
#[test]
fn unreadable_ledger_leaves_its_families_out() {
    let setup = setup();
    create(&setup, "web", "main", SLICE);
    let count = |seen: &Exposition| seen.value("runmig_records_unreadable", &[]);
    assert_eq!(count(&metrics(&setup, &[])), 0.0);
    let ledger = setup.state().join("ledger.json");
    let whole = fs::read_to_string(&ledger).unwrap();
    let damaged = whole.replace("\"classes\":[", "\"classes\":[1,");
    assert_ne!(damaged, whole);
    fs::write(&ledger, damaged).unwrap();
    let said = accepted(setup.migctl(&["metrics"]).exits(1));
    said.warns("its hash is wrong; hint: run migctl gc --repair as root");
    let seen = Exposition::read(&said.stdout);
    assert_eq!((count(&seen), seen.value(UP, &[])), (1.0, 1.0));
    for family in [
        "runmig_leases",
        "runmig_slice_info",
        "runmig_gpu_memory_bytes",
        "runmig_waiting",
        "runmig_creates_total",
    ] {
        assert!(seen.of(family).is_empty(), "{family}");
    }
    assert_eq!(seen.of("runmig_gpu_info").len(), 4);
    fs::write(&ledger, whole).unwrap();
}

/// Neither a ledger nor a GPU is a failure.
#[test]
fn new_machine_has_zeros() {
    let setup = Setup::with("--gpu H100-80GB --mig off", "");
    let seen = Exposition::read(&accepted(setup.migctl(&["metrics"]).ok()).stdout);
    assert!(!setup.state().exists());
    seen.has(UP, &[], 1.0);
    let leases = seen.of("runmig_leases");
    assert!(leases.iter().all(|series| series.value == 0.0));
    let free = [("state", "free"), ("GPU_I_ID", ""), ("kind", "")];
    seen.has("runmig_slice_info", &free, 1.0);
}
