//! GPUs that an apply holds while it changes their MIG mode.

use crate::layouts::modes::{ON, apply, modes, world};
use testkit::prelude::*;

/// A `nvidia-smi` that waits with its reset until it may go on.
pub struct SlowReset {
    started: PathBuf,
    go: PathBuf,
}

/// Puts a program of these steps in the place of `nvidia-smi`, whose path they get.
pub fn replace_smi(world: &World, steps: impl FnOnce(&str) -> String) {
    world.install_smi();
    let bin = world.machine().join("usr/bin");
    let reset = bin.join("reset");
    fs::rename(bin.join("nvidia-smi"), &reset).unwrap();
    let reset = format!("{} \"$@\"", reset.display());
    testkit::runtimes::program(
        &bin.join("nvidia-smi"),
        &format!("#!/bin/sh\n{}\n", steps(&reset)),
    );
}

impl SlowReset {
    /// Waits before the reset.
    pub fn install(world: &World) -> SlowReset {
        SlowReset::with(world, |wait, reset| format!("{wait}\nexec {reset}"))
    }

    /// Waits after the reset, before its end.
    fn lingering(world: &World) -> SlowReset {
        SlowReset::with(world, |wait, reset| format!("{reset} || exit\n{wait}"))
    }

    fn with(world: &World, steps: impl FnOnce(&str, &str) -> String) -> SlowReset {
        let (started, go) = (world.path("reset-started"), world.path("reset-may-go-on"));
        let [touched, told] = [&started, &go].map(|path| path.display());
        let wait = format!(": >{touched}\nuntil [ -e {told} ]; do sleep 0.05; done");
        replace_smi(world, |reset| steps(&wait, reset));
        SlowReset { started, go }
    }

    pub fn until_started(&self) {
        until("the reset begins", || self.started.exists());
    }

    pub fn go_on(&self) {
        fs::write(&self.go, "").unwrap();
    }
}

/// The driver has the new mode, and the instances of the layout are not on record yet.
/// Failure: a claim wants a place on a GPU whose mode an apply changes
#[test]
fn hold_keeps_claims_and_counts_once() {
    let world = world();
    let slow = SlowReset::lingering(&world);
    let applying = going(&mut apply(&world, ON));
    slow.until_started();
    assert_eq!(modes(&world), [Mode::On, Mode::On]);
    let gpu = world.engine().gpus[1].uuid.clone();
    let mut claim = world.program("stub-claims");
    claim.args(["prepare-at-once", "uid", &gpu, "1g.6gb", "3", "1"]);
    said(&mut claim).refused_for("the apply of layout ");
    let shown = world.tells(&["metrics"]);
    let its = { shown.lines() }.filter(|line| line.contains(&gpu));
    let its = its.filter(|line| line.starts_with("runmig_gpu_memory_slices{"));
    let all: u64 = its
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(all, 4, "{shown}");
    slow.go_on();
    applying.end().ok();
    assert!(world.records().len() > 1);
}
