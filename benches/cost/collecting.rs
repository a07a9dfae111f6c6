//! The cost of `migctl gc` for leases of an earlier boot, of which there may be any number.

use super::bundle;
use super::measure::{Call, Cost, median};
use super::table;
use runmig_lease::store::{Held, Instance, Lease, Store};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;

const COUNTS: [usize; 3] = [1_000, 3_000, 10_000];

pub fn run(work: &Path, rounds: usize) {
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
            let left = fs::read_dir(state.join("leases")).expect("leases").count();
            assert_eq!(left, 0, "leases are left");
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

/// As a boot leaves them whose `/run` is not a tmpfs: the bundles are gone.
fn leave(state: &Path, count: usize, work: &Path) {
    let store = Store::open(state, Duration::from_secs(10)).expect("a state directory");
    let ledger = store.lock("bench").expect("the ledger");
    for n in 0..count {
        let lease: Lease = serde_json::from_value(json!({
            "id": format!("{n:032x}"),
            "instance": format!("{n:032x}"),
            "portion": "all",
            "state": "ready",
            "bootId": "an-earlier-one",
            "created": "2026-01-01T00:00:00Z",
            "request": "1g.10gb",
            "holder": { "container": {
                "lowLevelRuntime": "/usr/sbin/runc",
                "root": "/run/runc",
                "id": format!("container-{n}"),
                "bundle": work.join("gone").join(n.to_string()),
            } },
            "creator": { "pid": 1, "startTime": 1 },
            "cgroups": ["bench"],
        }))
        .expect("a lease");
        let instance: Instance = serde_json::from_value(json!({
            "id": format!("{n:032x}"),
            "bootId": "an-earlier-one",
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
                "gpuInstanceID": n % 7 + 7,
                "computeInstanceID": 0,
                "migUUID": "MIG-b966230d-3bf4-52db-92d8-c51d2ac51c0c",
            } },
        }))
        .expect("an instance");
        ledger.put_new(&Held { lease, instance }).expect("a record");
    }
}
