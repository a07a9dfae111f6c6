//! The cost of `migctl gc` for leases of an earlier boot, of which there may be any number, and for shares of
//! containers that are gone.

use super::bundle;
use super::measure::{Call, Cost, median};
use super::table;
use runmig_lease::process::{self, Host, View};
use runmig_lease::store::{Held, Instance, Lease, Store};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const COUNTS: [usize; 3] = [1_000, 3_000, 10_000];

/// The number of shares.
const SHARES: usize = 1_000;
/// The number of their GPUs.
const GPUS: usize = 8;

pub fn run(work: &Path, sim: &Path, rounds: usize) {
    earlier_boot(work, rounds);
    shares(work, sim, rounds);
}

fn earlier_boot(work: &Path, rounds: usize) {
    let state = work.join("stale");
    let config = work.join("stale.toml");
    bundle::write(&config, &format!("state_dir = \"{}\"\n", state.display()));
    let gc = Call::new(Path::new(env!("CARGO_BIN_EXE_migctl")), &["gc"]);
    let gc = gc.env("RUNMIG_CONFIG", &config);
    let mut costs: [Vec<Cost>; 3] = Default::default();
    for _ in 0..rounds {
        for (count, costs) in COUNTS.into_iter().zip(&mut costs) {
            leave(&state, count, work);
            let cost = gc.run();
            assert_eq!(cost.status, 0, "migctl gc");
            assert_eq!(left(&state), 0, "leases are left");
            costs.push(cost);
        }
    }
    let each = |at: usize| median(&costs[at], |c| c.wall) / COUNTS[at] as f64;
    let rows = COUNTS.iter().enumerate().map(|(at, count)| {
        vec![
            count.to_string(),
            format!("{:.1}", median(&costs[at], |c| c.wall) * 1e3),
            format!("{:.1}", median(&costs[at], |c| c.cpu) * 1e3),
            format!("{:.1}", each(at) * 1e6),
            format!("{:.2}", each(at) / each(0)),
        ]
    });
    println!("gc of leases of an earlier boot, medians of {rounds}");
    table::print(
        &["leases", "wall ms", "CPU ms", "us each", "linear = 1"],
        &rows.collect::<Vec<_>>(),
    );
    println!();
}

/// Collects shares of this boot whose containers were killed.
fn shares(work: &Path, sim: &Path, rounds: usize) {
    let machine = work.join("shared machine");
    let mut new = Command::new(sim);
    new.arg("new").arg(&machine);
    new.args(["--gpu", "L40S", "--count", &GPUS.to_string()]);
    assert!(new.output().expect("nvml-sim").status.success());
    let (state, config) = (work.join("shares"), work.join("shares.toml"));
    bundle::configure(&config, &machine, &state);
    let gc = Call::new(Path::new(env!("CARGO_BIN_EXE_migctl")), &["gc"]);
    let gc = gc.env("RUNMIG_CONFIG", &config);
    let mut costs = Vec::new();
    for _ in 0..rounds {
        leave_shares(&state, &machine, work);
        let cost = gc.run();
        assert_eq!(cost.status, 0, "migctl gc");
        assert_eq!(left(&state), 0, "leases are left");
        costs.push(cost);
    }
    println!(
        "gc of {SHARES} shares of containers that are gone: {:.0} ms, {:.0} of CPU (aim: at most 2000), medians of {rounds}",
        median(&costs, |c| c.wall) * 1e3,
        median(&costs, |c| c.cpu) * 1e3
    );
    println!();
}

fn leave_shares(state: &Path, machine: &Path, work: &Path) {
    let store = Store::open(state, Duration::from_secs(10)).expect("a state directory");
    let boot = process::boot_id(machine).expect("a boot id");
    let store = store.at_boot(&boot);
    let seen = View::new(&Host, std::process::id(), true).namespaces;
    let ledger = store.lock("bench").expect("the ledger");
    let share = |n: usize| {
        let gpu = n % GPUS;
        let lease: Arc<Lease> = serde_json::from_value(json!({
            "id": format!("{n:032x}"),
            "instance": format!("{gpu:032x}"),
            "portion": { "share": { "memoryMiB": 1024, "bookedMiB": 1024, "enforcement": "none" } },
            "state": "ready",
            "created": "2026-01-01T00:00:00Z",
            "request": "share of 1Gi",
            "holder": holder(work, n),
            "creator": { "pid": 1, "startTime": 1 },
            "init": { "pid": 1, "startTime": 1 },
            "namespaces": seen,
            // As a ready lease has them: whole paths.
            "cgroups": [format!("/runmig-bench/{n}")],
        }))
        .expect("a lease");
        let instance: Arc<Instance> = serde_json::from_value(json!({
            "id": format!("{gpu:032x}"),
            "created": "2026-01-01T00:00:00Z",
            "origin": "ours",
            "state": "ready",
            "resource": { "gpu": {
                "gpuUUID": format!("GPU-cf4c8984-aaf6-51e5-bf91-b7b32771b{gpu:03x}"),
                "gpuIndex": gpu,
                "gpuMinor": gpu,
                "model": "NVIDIA L40S",
                "memoryMiB": 45_000,
            } },
        }))
        .expect("an instance");
        Held { lease, instance }
    };
    let shares: Vec<Held> = (0..SHARES).map(share).collect();
    ledger.put_all(&shares).expect("records");
}

/// Returns the number of leases in a ledger.
fn left(state: &Path) -> usize {
    let store = Store::open(state, Duration::from_secs(10)).expect("a state directory");
    store.list().expect("the ledger").entries.len()
}

fn holder(work: &Path, n: usize) -> Value {
    json!({ "container": {
        "lowLevelRuntime": "/usr/sbin/runc",
        "root": "/run/runc",
        "id": format!("container-{n}"),
        "bundle": work.join("gone").join(n.to_string()),
    } })
}

/// As a boot leaves them whose `/run` is not a tmpfs: the bundles are gone.
pub fn leave(state: &Path, count: usize, work: &Path) {
    let store = Store::open(state, Duration::from_secs(10)).expect("a state directory");
    let store = store.at_boot(&"an-earlier-one".into());
    let ledger = store.lock("bench").expect("the ledger");
    let slice = |n: usize| {
        let lease: Arc<Lease> = serde_json::from_value(json!({
            "id": format!("{n:032x}"),
            "instance": format!("{n:032x}"),
            "portion": "all",
            "state": "ready",
            "created": "2026-01-01T00:00:00Z",
            "request": "1g.10gb",
            "holder": holder(work, n),
            "creator": { "pid": 1, "startTime": 1 },
            "cgroups": ["bench"],
        }))
        .expect("a lease");
        let instance: Arc<Instance> = serde_json::from_value(json!({
            "id": format!("{n:032x}"),
            "created": "2026-01-01T00:00:00Z",
            "origin": "ours",
            "state": "ready",
            "resource": { "mig": {
                "profile": "1g.10gb",
                "profileID": 19,
                "gpuUUID": "GPU-cf4c8984-aaf6-51e5-bf91-b7b32771b0da",
                "gpuIndex": 0,
                "gpuMinor": 0,
                "placement": { "start": n % 7, "size": 1 },
                "memoryMiB": 9728,
                "gpuInstanceID": n % 7 + 7,
                "computeInstanceID": 0,
                "migUUID": "MIG-b966230d-3bf4-52db-92d8-c51d2ac51c0c",
            } },
        }))
        .expect("an instance");
        Held { lease, instance }
    };
    let slices: Vec<Held> = (0..count).map(slice).collect();
    ledger.put_all(&slices).expect("records");
}
