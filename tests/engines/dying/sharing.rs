//! Shares and whole GPUs of containers whose engine is killed in the middle of a create.

use testkit::gate::Reached;
use testkit::podman::on_each;
use testkit::prelude::*;
use testkit::process::{descendants, with_argument};
use testkit::sharing::{Kind, SHARE_AT_MPS, SHARE_AT_NONE, WHOLE_GPU, daemon, ready};
use testkit::{Gate, Podman};

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
            setup.migctl(&["gc"]).ok();
            assert_eq!(setup.the_lease()["id"], before["id"]);
            drop(reached);
            let after = ready(setup, id);
            assert_eq!(daemon(&after), daemon(&before));
            podman.remove("half");
            // conmon may start a clean-up between a look and the next.
            until("all of it is dead", || {
                let left = in_cgroup(id);
                left.iter().for_each(|pid| kill(*pid));
                left.is_empty()
            });
            setup.migctl(&["gc"]).ok();
            setup.nothing_is_left();
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
            setup.migctl(&["gc"]).ok();
            setup.nothing_is_left();
        },
    );
}

/// Failure: a kill of podman, or of podman, conmon, runmig and the low-level runtime, during the create of a container with a share or a whole GPU
#[test]
fn share_at_none_survives_killed_podman() {
    podman_dies(SHARE_AT_NONE);
}

#[test]
fn share_at_mps_survives_killed_podman() {
    podman_dies(SHARE_AT_MPS);
}

#[test]
fn whole_gpu_survives_killed_podman() {
    podman_dies(WHOLE_GPU);
}

#[test]
fn kills_release_share_at_mps() {
    all_die(SHARE_AT_MPS);
}

#[test]
fn kills_release_whole_gpu() {
    all_die(WHOLE_GPU);
}
