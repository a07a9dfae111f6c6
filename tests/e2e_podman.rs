//! The whole path from podman's command line, on runc and on crun.

mod support;

use serde_json::Value;
use support::bundle::{SHOW, nodes, visible};
use support::process::until;
use support::runtimes::script;
use support::{Low, Podman, Setup};

const ASK: &str = "--annotation=runmig.dev/slice=1g.10gb";

/// Runs the test on both.
#[track_caller]
fn on_each(test: impl Fn(&Setup, &Podman)) {
    for low in [Low::Runc, Low::Crun] {
        let Some(setup) = Setup::of(low) else {
            continue;
        };
        let Some(podman) = Podman::new(&setup) else {
            continue;
        };
        test(&setup, &podman);
    }
}

fn id(said: &support::Said) -> &str {
    said.stdout.trim()
}

#[test]
fn run_gets_a_slice_and_gives_it_back() {
    on_each(|setup, podman| {
        let said = podman.run("run", &["--rm", ASK], SHOW).ok();
        assert!(
            visible(&said.stdout).unwrap().starts_with("MIG-"),
            "{}",
            said.stdout
        );
        assert_eq!(nodes(&said.stdout).len(), 7, "{}", said.stdout);
        setup.nothing_is_left();
    });
}

#[test]
fn the_slice_lives_as_long_as_the_container() {
    on_each(|setup, podman| {
        let script = format!("{SHOW}; sleep 1000");
        let started = podman.run("run", &["--detach", ASK], &script).ok();
        let (lease, instance) = (setup.the_lease(), setup.machine.the_instance());
        assert_eq!(lease["container"], id(&started));
        assert_eq!(lease["state"], "ready");
        assert_eq!(lease["migUUID"], instance.uuid);

        let saw = || podman.podman(&["logs", id(&started)]).ok().stdout;
        until("it printed", || saw().contains("VISIBLE="));
        assert_eq!(visible(&saw()), Some(instance.uuid.as_str()));
        assert_eq!(nodes(&saw()), setup.machine.nodes_of(&instance));
        let inside = podman
            .podman(&["exec", id(&started), "sh", "-c", SHOW])
            .ok();
        assert_eq!(nodes(&inside.stdout), setup.machine.nodes_of(&instance));

        podman
            .podman(&["rm", "--force", "--time=0", id(&started)])
            .ok();
        setup.nothing_is_left();
    });
}

#[test]
fn stop_gives_it_back_and_start_takes_another() {
    on_each(|setup, podman| {
        let made = podman.run("create", &[ASK], "sleep 1000").ok();
        setup.nothing_is_left();
        for _ in 0..2 {
            podman.podman(&["start", id(&made)]).ok();
            assert_eq!(setup.the_lease()["container"], id(&made));
            setup.machine.the_instance();
            podman.podman(&["stop", "--time=0", id(&made)]).ok();
            until("the slice is back", || setup.leases().is_empty());
            setup.nothing_is_left();
        }
        podman.podman(&["start", id(&made)]).ok();
        podman.podman(&["restart", "--time=0", id(&made)]).ok();
        until("there is one", || setup.leases().len() == 1);
        setup.machine.the_instance();
        podman
            .podman(&["rm", "--force", "--time=0", id(&made)])
            .ok();
        setup.nothing_is_left();
    });
}

#[test]
fn exit_codes_and_signals() {
    on_each(|setup, podman| {
        podman.run("run", &["--rm", ASK], "exit 42").exits(42);
        setup.nothing_is_left();
        let script = "trap 'exit 9' TERM; while :; do sleep 0.1; done";
        let made = podman.run("run", &["--detach", ASK], script).ok();
        podman.podman(&["kill", "--signal=TERM", id(&made)]).ok();
        assert_eq!(podman.podman(&["wait", id(&made)]).ok().stdout, "9\n");
        podman.podman(&["rm", id(&made)]).ok();
        setup.nothing_is_left();
    });
}

#[test]
fn who_does_not_ask_gets_none() {
    on_each(|setup, podman| {
        let said = podman.run("run", &["--rm"], SHOW).ok();
        assert_eq!(said.stdout, "VISIBLE=\n");
        assert!(!setup.state().exists());
        let asks = ["--rm", "--env=NVIDIA_VISIBLE_DEVICES=all", ASK];
        let said = podman.run("run", &asks, SHOW).ok();
        assert!(
            visible(&said.stdout).unwrap().starts_with("MIG-"),
            "{}",
            said.stdout
        );
    });
}

#[test]
fn no_room_is_what_the_user_reads() {
    on_each(|setup, podman| {
        for _ in 0..2 {
            let whole = "--annotation=runmig.dev/slice=7g.80gb";
            podman.run("run", &["--detach", whole], "sleep 1000").ok();
        }
        let said = podman.run("run", &["--rm", ASK], "true").exits(126);
        assert!(
            said.stderr.contains(
                "no room for 1g.10gb on 2 GPUs: 0 of 16 memory slices are free, at most 0 on one \
                 GPU (full); hint: migctl list shows who has what"
            ),
            "{}",
            said.stderr
        );
        assert_eq!(setup.leases().len(), 2);
        podman.podman(&["rm", "--all", "--force", "--time=0"]).ok();
        setup.nothing_is_left();
    });
}

#[test]
fn a_privileged_container_that_asks_is_refused() {
    on_each(|setup, podman| {
        let said = podman
            .run("run", &["--rm", "--privileged", ASK], "true")
            .exits(126);
        assert!(
            said.stderr
                .contains("NVIDIA devices that are not in its slice"),
            "{}",
            said.stderr
        );
        setup.nothing_is_left();
    });
}

/// podman calls the hooks of hooks.d itself, when the container is cleaned up; by then the slice is
/// back, and the hook, which has no lease id, finds nothing to do.
#[test]
fn the_example_for_hooks_d() {
    on_each(|setup, podman| {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/hooks/runmig-poststop.json");
        let text = std::fs::read_to_string(file).unwrap();
        let mut hook: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(hook["hook"]["path"], "/usr/local/bin/runmig-hook");
        assert_eq!(hook["hook"]["args"], serde_json::json!(["runmig-hook"]));
        let (dir, seen) = (setup.path("hooks.d"), setup.path("seen"));
        std::fs::create_dir(&dir).unwrap();
        let spy = dir.join("spy");
        script(
            &spy,
            &format!(
                "cat >{0}; {1} --config {2} <{0} && echo called >>{0}",
                seen.display(),
                setup.program("runmig-hook").display(),
                setup.config().display()
            ),
        );
        hook["hook"]["path"] = spy.to_str().unwrap().into();
        std::fs::write(dir.join("runmig.json"), hook.to_string()).unwrap();

        let hooks = format!("--hooks-dir={}", dir.display());
        let rootfs = podman.rootfs();
        for (annotation, calls) in [(ASK, true), ("--annotation=slice.example/x=1g.10gb", false)] {
            let _ = std::fs::remove_file(&seen);
            let mut run = podman.command(&[&hooks, "run", "--rm"]);
            run.args(Podman::OPTIONS);
            run.args([annotation, "--rootfs", &rootfs, "true"]);
            support::said(&mut run).ok();
            let seen = std::fs::read_to_string(&seen).unwrap_or_default();
            assert_eq!(seen.contains("called"), calls, "{seen}");
            setup.nothing_is_left();
        }
    });
}
