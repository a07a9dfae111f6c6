//! Slices, shares and whole GPUs of containers whose engine is killed in the middle of a create.

use crate::dying::victim::{keeps_its_slice, the_next_create_has_room};
use testkit::gate::Reached;
use testkit::podman::on_each;
use testkit::prelude::*;
use testkit::process::descendants;
use testkit::sharing::{Kind, SHARE_AT_MPS, SHARE_AT_NONE, SLICE, WHOLE_GPU, daemon, ready};

/// Runs podman until its low-level runtime waits in a hook.
fn halfway(setup: &Setup, podman: &Podman, kind: Kind, gate: &Gate) -> (Going, Reached) {
    let hooks = setup.path("hooks.d");
    std::fs::create_dir_all(&hooks).unwrap();
    let hook = json!({
        "version": "1.0.0",
        "hook": {"path": gate.hook()},
        "when": {"always": true},
        "stages": ["createRuntime"],
    });
    std::fs::write(hooks.join("wait.json"), hook.to_string()).unwrap();
    let hooks = format!("--hooks-dir={}", hooks.display());
    let ask = format!("--annotation={}={}", kind.key, kind.value);
    let mut run = podman.command(&[&hooks, "run", "--detach", "--name=half", &ask]);
    run.args(["--rootfs", &podman.rootfs(), "sleep", "1000"]);
    let run = going(run.stdin(Stdio::null()));
    (run, gate.reached())
}

/// A collector, and for a slice a create too, leaves a container its lease.
fn keeps_its_lease(kind: Kind, setup: &Setup, before: &Value) {
    if kind.key == SLICE.key {
        keeps_its_slice(setup, before["container"].as_str().unwrap());
    }
    setup.migctl(&["gc"]).ok();
    assert_eq!(setup.the_lease()["id"], before["id"]);
}

/// A collector, or for a slice the next create, ends the lease.
fn is_released(kind: Kind, setup: &Setup) {
    if kind.key == SLICE.key {
        return the_next_create_has_room(setup);
    }
    setup.migctl(&["gc"]).ok();
    setup.nothing_is_left();
}

/// The low-level runtime goes on, so the share and its daemon stay as long as the container.
fn podman_dies(kind: Kind) {
    on_each(
        |low| kind.setup(low),
        |setup, podman| {
            let gate = Gate::new(&setup.path("gate"));
            let (run, reached) = halfway(setup, podman, kind, &gate);
            let before = setup.the_lease();
            let id = before["container"].as_str().unwrap();
            run.kill();
            keeps_its_lease(kind, setup, &before);
            drop(reached);
            let after = ready(setup, id);
            assert_eq!(daemon(&after), daemon(&before));
            keeps_its_lease(kind, setup, &before);
            podman.remove("half");
            // conmon may start a clean-up between a look and the next.
            until("all of it is dead", || {
                let left = in_cgroup(id);
                left.iter().for_each(|pid| kill(*pid));
                left.is_empty()
            });
            is_released(kind, setup);
        },
    );
}

/// podman, conmon, runmig and the low-level runtime at one blow, but not the daemon.
fn all_die(kind: Kind) {
    on_each(
        |low| kind.setup(low),
        |setup, podman| {
            let gate = Gate::new(&setup.path("gate"));
            let (run, reached) = halfway(setup, podman, kind, &gate);
            let before = setup.the_lease();
            let id = before["container"].as_str().unwrap();
            // conmon is no child of podman's any more.
            let conmons = with_argument(podman.path().to_str().unwrap());
            let mut all: Vec<i32> = conmons.iter().copied().flat_map(descendants).collect();
            all.extend(conmons.iter().copied().chain(children(run.pid())));
            all.retain(|pid| daemon(&before) != Some(*pid));
            run.kill();
            all.into_iter().for_each(kill);
            until("init has noticed", || in_cgroup(id).is_empty());
            drop(reached);
            podman.remove("half");
            is_released(kind, setup);
        },
    );
}

testkit::tests! {
    /// Failure: a kill of podman, or of podman, conmon, runmig and the low-level runtime, during the create of a container with a slice, a share or a whole GPU
    slice_survives_killed_podman: podman_dies(SLICE);
    share_at_none_survives_killed_podman: podman_dies(SHARE_AT_NONE);
    share_at_mps_survives_killed_podman: podman_dies(SHARE_AT_MPS);
    whole_gpu_survives_killed_podman: podman_dies(WHOLE_GPU);
    kills_release_slice: all_die(SLICE);
    kills_release_share_at_mps: all_die(SHARE_AT_MPS);
    kills_release_whole_gpu: all_die(WHOLE_GPU);
}
