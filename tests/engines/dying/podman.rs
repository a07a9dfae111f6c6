//! A real engine: podman, its conmon and what they start, killed.

use crate::dying::victim::{keeps_its_slice, setup, the_next_create_has_room};
use testkit::gate::Reached;
use testkit::podman::{id, on_each};
use testkit::prelude::*;
use testkit::process::descendants;
use testkit::{Gate, Podman};

const ASK: &str = "--annotation=runmig.dev/slice=1g.10gb";

fn detached(podman: &Podman) -> String {
    let started = podman
        .run("run", &["--detach", ASK], "exec sleep 1000")
        .ok();
    id(&started).to_owned()
}

/// conmon and init killed: podman says "Up", and removes it without a delete.
#[test]
fn removed_without_a_delete() {
    on_each(setup, |setup, podman| {
        for by_hand in [true, false] {
            let id = detached(podman);
            let (init, conmon) = (podman.pid(&id, "Pid"), podman.pid(&id, "ConmonPid"));
            keeps_its_slice(setup, &id);
            kill(conmon);
            keeps_its_slice(setup, &id);
            kill(init);
            podman.remove(&id);
            if by_hand {
                setup.migctl(&["gc"]).ok();
                setup.nothing_is_left();
            } else {
                the_next_create_has_room(setup);
            }
        }
    });
}

#[test]
fn container_outlives_killed_conmon() {
    on_each(setup, |setup, podman| {
        let id = detached(podman);
        let init = podman.pid(&id, "Pid");
        kill(podman.pid(&id, "ConmonPid"));
        keeps_its_slice(setup, &id);
        assert!(lives(init));
        podman.remove(&id);
        until("it is dead", || !lives(init));
        setup.migctl(&["gc"]).ok();
        setup.nothing_is_left();
    });
}

/// podman in the middle of a run, and the low-level runtime stopped in a hook of hooks.d.
fn halfway(setup: &Setup, podman: &Podman, gate: &Gate) -> (Going, Reached) {
    let hooks = setup.path("hooks.d");
    std::fs::create_dir_all(&hooks).unwrap();
    let hook = json!({
        "version": "1.0.0",
        "hook": {"path": gate.hook()},
        "when": {"always": true},
        "stages": ["createRuntime"],
    });
    std::fs::write(hooks.join("wait.json"), hook.to_string()).unwrap();
    let (hooks, rootfs) = (format!("--hooks-dir={}", hooks.display()), podman.rootfs());
    let mut run = podman.command(&[&hooks, "run", "--detach", "--name=half"]);
    run.args([ASK, "--rootfs", &rootfs, "sleep", "1000"]);
    let run = going(run.stdin(Stdio::null()));
    (run, gate.reached())
}

/// The low-level runtime that podman started goes on without it. Nothing will ever start or delete
/// its container, and as long as its init waits, it has its slice.
#[test]
fn podman_is_killed_in_the_middle() {
    on_each(setup, |setup, podman| {
        let gate = Gate::new(&setup.path("gate"));
        let (run, reached) = halfway(setup, podman, &gate);
        let id = setup.the_lease()["container"].as_str().unwrap().to_owned();
        run.kill();
        keeps_its_slice(setup, &id);
        drop(reached);
        until("it is made", || setup.the_lease()["state"] == "ready");
        keeps_its_slice(setup, &id);
        podman.remove("half");
        // conmon may start a clean-up between a look and the next.
        until("all of it is dead", || {
            let left = in_cgroup(&id);
            left.iter().for_each(|pid| kill(*pid));
            left.is_empty()
        });
        the_next_create_has_room(setup);
    });
}

/// podman, conmon, runmig and the low-level runtime, at one blow.
#[test]
fn kills_every_process_midway() {
    on_each(setup, |setup, podman| {
        let gate = Gate::new(&setup.path("gate"));
        let (run, reached) = halfway(setup, podman, &gate);
        let id = setup.the_lease()["container"].as_str().unwrap().to_owned();
        // conmon is no child of podman's any more.
        let program = podman.path().to_str().unwrap();
        let conmons = testkit::process::with_argument(program);
        let mut all: Vec<i32> = conmons.iter().copied().flat_map(descendants).collect();
        all.extend(&conmons);
        all.extend(children(run.pid()));
        run.kill();
        for pid in all {
            kill(pid);
        }
        until("init has noticed", || in_cgroup(&id).is_empty());
        drop(reached);
        podman.remove("half");
        the_next_create_has_room(setup);
    });
}

#[test]
fn paused_stopped_and_started_again() {
    on_each(setup, |setup, podman| {
        let id = detached(podman);
        podman.podman(&["pause", &id]).ok();
        keeps_its_slice(setup, &id);
        podman.podman(&["unpause", &id]).ok();
        keeps_its_slice(setup, &id);
        for _ in 0..2 {
            podman.podman(&["stop", "--time=0", &id]).ok();
            until("the slice is back", || setup.leases().is_empty());
            podman.podman(&["start", &id]).ok();
            keeps_its_slice(setup, &id);
            podman.podman(&["restart", "--time=0", &id]).ok();
            keeps_its_slice(setup, &id);
        }
        podman.remove(&id);
        setup.nothing_is_left();
    });
}

/// Whether this machine can or not: the container that runs on keeps what it has.
#[test]
fn checkpoints_and_restores() {
    on_each(setup, |setup, podman| {
        let id = detached(podman);
        let checkpoint = said(&mut podman.command(&["container", "checkpoint", &id]));
        if checkpoint.status.success() {
            until("the slice is back", || setup.leases().is_empty());
            let restored = podman.podman(&["container", "restore", &id]);
            assert!(!restored.status.success());
            assert!(
                restored.stderr.contains("cannot be restored"),
                "{restored:?}"
            );
        } else {
            keeps_its_slice(setup, &id);
        }
        podman.remove(&id);
        setup.migctl(&["gc"]).ok();
        setup.nothing_is_left();
    });
}
