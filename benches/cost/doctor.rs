//! The time of `migctl doctor`, and the part of the engines, which tell their versions.

use super::bundle;
use super::measure::{Call, Cost, median};
use std::path::Path;
use std::process::Command;

const GPUS: usize = 8;

pub fn run(work: &Path, sim: &Path, bin: &Path, rounds: usize) {
    let machine = work.join("examined machine");
    let mut new = Command::new(sim);
    new.arg("new").arg(&machine);
    new.args([
        "--gpu",
        "H100-80GB",
        "--count",
        &GPUS.to_string(),
        "--mig",
        "on",
    ]);
    assert!(new.output().expect("nvml-sim").status.success());
    let (state, config) = (work.join("examined"), work.join("examined.toml"));
    bundle::configure(&config, &machine, &state);
    let migctl = bin.join("migctl");
    let doctor = |more: &[&str]| {
        let arguments = [&["doctor"], more].concat();
        Call::new(&migctl, &arguments).env("RUNMIG_CONFIG", &config)
    };
    let calls = [doctor(&[]), doctor(&["--skip=engines"])];
    let mut costs: [Vec<Cost>; 2] = Default::default();
    for _ in 0..rounds {
        for (call, costs) in calls.iter().zip(&mut costs) {
            let cost = call.run();
            // 1 if a check fails on this machine.
            assert!(cost.status <= 1, "migctl doctor");
            costs.push(cost);
        }
    }
    println!(
        "migctl doctor, {GPUS} GPUs: {:.0} ms, {:.0} without the engines (aim: below 1000), medians of {rounds}",
        median(&costs[0], |c| c.wall) * 1e3,
        median(&costs[1], |c| c.wall) * 1e3
    );
    println!();
}
