//! A real engine: podman, its conmon and what they start, killed.

use crate::support::gate::Reached;
use crate::support::process::{children, descendants, in_cgroup, kill, lives, until};
use crate::support::{Gate, Going, Low, Podman, Said, Setup, going, said};
use crate::victim::{keeps_its_slice, setup, the_next_create_has_room};
use serde_json::json;
use std::process::Stdio;

const ASK: &str = "--annotation=runmig.dev/slice=1g.10gb";

#[track_caller]
fn on_each(test: impl Fn(&Setup, &Podman)) {
    for low in [Low::Runc, Low::Crun] {
        let Some(setup) = setup(low) else { continue };
        let Some(podman) = Podman::new(&setup) else {
            continue;
        };
        test(&setup, &podman);
    }
}

fn id(said: &Said) -> &str {
    said.stdout.trim()
}

/// `.State.NAME` as podman has it.
#[track_caller]
fn pid_of(podman: &Podman, id: &str, name: &str) -> i32 {
    let format = format!("--format={{{{.State.{name}}}}}");
    let said = podman.podman(&["inspect", &format, id]).ok();
    said.stdout.trim().parse().unwrap()
}

fn remove(podman: &Podman, id: &str) {
    podman.podman(&["rm", "--force", "--time=0", id]);
}

fn detached(podman: &Podman) -> String {
    let started = podman
        .run("run", &["--detach", ASK], "exec sleep 1000")
        .ok();
    id(&started).to_owned()
}

/// conmon and init killed: podman says "Up", and removes it without a delete.
#[test]
fn removed_without_a_delete() {
    on_each(|setup, podman| {
        for by_hand in [true, false] {
            let id = detached(podman);
            let (init, conmon) = (pid_of(podman, &id, "Pid"), pid_of(podman, &id, "ConmonPid"));
            keeps_its_slice(setup, &id);
            kill(conmon);
            keeps_its_slice(setup, &id);
            kill(init);
            remove(podman, &id);
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
fn conmon_is_killed_and_the_container_lives() {
    on_each(|setup, podman| {
        let id = detached(podman);
        let init = pid_of(podman, &id, "Pid");
        kill(pid_of(podman, &id, "ConmonPid"));
        keeps_its_slice(setup, &id);
        assert!(lives(init));
        remove(podman, &id);
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
    run.args(Podman::OPTIONS)
        .args([ASK, "--rootfs", &rootfs, "sleep", "1000"]);
    let run = going(run.stdin(Stdio::null()));
    (run, gate.reached())
}

/// What podman started goes on without it. Nobody will ever start or delete what comes of that, and
/// as long as its init waits, it has its slice.
#[test]
fn podman_is_killed_in_the_middle() {
    on_each(|setup, podman| {
        let gate = Gate::new(&setup.path("gate"));
        let (run, reached) = halfway(setup, podman, &gate);
        let id = setup.the_lease()["container"].as_str().unwrap().to_owned();
        run.kill();
        keeps_its_slice(setup, &id);
        drop(reached);
        until("it is made", || setup.the_lease()["state"] == "ready");
        keeps_its_slice(setup, &id);
        remove(podman, "half");
        for pid in in_cgroup(&id) {
            kill(pid);
        }
        the_next_create_has_room(setup);
    });
}

/// podman, conmon, runmig and the low-level runtime, at one blow.
#[test]
fn all_of_them_are_killed_in_the_middle() {
    on_each(|setup, podman| {
        let gate = Gate::new(&setup.path("gate"));
        let (run, reached) = halfway(setup, podman, &gate);
        let id = setup.the_lease()["container"].as_str().unwrap().to_owned();
        // conmon is no child of podman's any more.
        let program = podman.runtime().to_str().unwrap();
        let conmons = crate::support::process::with_argument(program);
        let mut all: Vec<i32> = conmons.iter().copied().flat_map(descendants).collect();
        all.extend(&conmons);
        all.extend(children(run.pid()));
        run.kill();
        for pid in all {
            kill(pid);
        }
        until("init has noticed", || in_cgroup(&id).is_empty());
        drop(reached);
        remove(podman, "half");
        the_next_create_has_room(setup);
    });
}

#[test]
fn paused_stopped_and_started_again() {
    on_each(|setup, podman| {
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
        remove(podman, &id);
        setup.nothing_is_left();
    });
}

/// Whether this machine can or not: the container that runs on keeps what it has.
#[test]
fn a_checkpoint() {
    on_each(|setup, podman| {
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
        remove(podman, &id);
        setup.migctl(&["gc"]).ok();
        setup.nothing_is_left();
    });
}
