//! GPUs that an apply holds while it changes their MIG mode.

use crate::layouts::modes::{ON, migctl, modes, world};
use testkit::prelude::*;

/// A `nvidia-smi` that waits with its reset until it may go on.
pub struct SlowReset {
    started: PathBuf,
    go: PathBuf,
}

impl SlowReset {
    /// Waits before the reset.
    pub fn install(world: &World) -> SlowReset {
        SlowReset::with(world, |wait, reset| format!("{wait}\nexec {reset}\n"))
    }

    /// Waits after the reset, before its end.
    fn lingering(world: &World) -> SlowReset {
        SlowReset::with(world, |wait, reset| format!("{reset} || exit\n{wait}\n"))
    }

    fn with(world: &World, steps: impl FnOnce(String, String) -> String) -> SlowReset {
        world.install_smi();
        let bin = world.machine().join("usr/bin");
        fs::rename(bin.join("nvidia-smi"), bin.join("reset")).unwrap();
        let slow = SlowReset {
            started: world.path("reset-started"),
            go: world.path("reset-may-go-on"),
        };
        let wait = format!(
            ": >{}\nuntil [ -e {} ]; do sleep 0.05; done",
            slow.started.display(),
            slow.go.display()
        );
        let reset = format!("{}/reset \"$@\"", bin.display());
        let text = format!("#!/bin/sh\n{}", steps(wait, reset));
        fs::write(bin.join("nvidia-smi"), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(bin.join("nvidia-smi"), mode).unwrap();
        slow
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
    let applying = going(&mut migctl(&world, ON, &[]));
    slow.until_started();
    assert_eq!(modes(&world), [Mode::On, Mode::On]);
    let gpu = world.engine().gpus[1].uuid.clone();
    let mut claim = world.program("stub-claims");
    claim.args(["prepare-at-once", "uid", &gpu, "1g.6gb", "3", "1"]);
    let line = said(&mut claim).refused();
    has(&line, "the apply of layout ");
    let shown = world.tells(&["metrics"]);
    let slices = |line: &str| -> Option<u64> {
        let of_gpu = line
            .strip_prefix("runmig_gpu_memory_slices{")?
            .contains(&gpu);
        line.rsplit(' ').next().filter(|_| of_gpu)?.parse().ok()
    };
    let all: u64 = shown.lines().filter_map(slices).sum();
    assert_eq!(all, 4, "{shown}");
    slow.go_on();
    applying.end().ok();
    assert!(world.records().len() > 1);
}
