//! The work of `migctl apply` beside that of mig-parted's. `scripts/bench layouts` runs it with slow calls.

use crate::layouts::draw;
use crate::layouts::oracle::MigParted;
use crate::layouts::ours::Ours;
use std::time::{Duration, Instant};
use testkit::Machine;

const FILE: &str = "version: v1
mig-configs:
  before:
  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}
  after:
  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 5, 2g.20gb: 1}}
";

const CHANGES: [&str; 4] = [
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
];

/// Returns the number of calls that change the GPU, and the time.
fn measured(machine: &Machine, apply: impl FnOnce()) -> (usize, Duration) {
    if let Ok(takes) = std::env::var("RUNMIG_LAYOUT_CALL") {
        for call in CHANGES.iter().chain(&["nvmlDeviceCreateGpuInstance"]) {
            machine.sim("fault", &["--call", call, "--takes", &takes]);
        }
    }
    machine.sim("trace", &["on"]);
    let begun = Instant::now();
    apply();
    let time = begun.elapsed();
    let log = nvml_sim::trace::read(&machine.dir()).unwrap();
    let changes = |line: &&str| {
        let call = line.split(' ').nth(1).unwrap_or_default();
        CHANGES.contains(&call) || call == "nvmlDeviceCreateGpuInstance"
    };
    (log.lines().filter(changes).count(), time)
}

#[test]
fn quarter_of_changing_calls() {
    let Some(mut parted) = MigParted::find() else {
        return;
    };
    let ours = Ours::on(Machine::new("A100-80GB", 1));
    let path = ours.file(FILE);
    let file = path.to_str().unwrap();
    ours.migctl(&["apply", "-f", file, "-c", "before"]).ok();
    let other = draw::twin(&ours.machine);
    parted.plug(&other);
    let call = ["apply", "-f", file, "-c", "after"];
    let (mine, my_time) = measured(&ours.machine, || drop(ours.migctl(&call).ok()));
    let (theirs, their_time) = measured(&other, || {
        assert_eq!(parted.call(&other, &call).status, 0);
    });
    eprintln!(
        "migctl apply: {mine} changing calls, {:.2} s; mig-parted: {theirs}, {:.2} s; ratios {:.2} and {:.2}",
        my_time.as_secs_f64(),
        their_time.as_secs_f64(),
        mine as f64 / theirs as f64,
        my_time.as_secs_f64() / their_time.as_secs_f64()
    );
    assert!(
        mine * 4 <= theirs,
        "{mine} calls, and {theirs} of mig-parted"
    );
}
