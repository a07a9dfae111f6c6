//! The whole path from podman's command line: the distribution's podman on runc and on crun, and a
//! current one, with the configuration that is shipped.

mod images;
mod pods;
mod sharing;
mod waits;
mod without_mig;
mod words;

use serde_json::Value;
use testkit::bundle::{NODES, OPEN, SHOW, all_open, nodes, visible};
use testkit::podman::{IMAGE, id, on_each};
use testkit::process::{kill, lives, until};
use testkit::runtimes::script;
use testkit::{Podman, Said, Setup};

const ASK: &str = "--annotation=runmig.dev/slice=1g.10gb";

fn sleeping(podman: &Podman) -> String {
    id(&podman
        .run("run", &["--detach", ASK], "exec sleep 1000")
        .ok())
    .to_owned()
}

#[track_caller]
fn exec(podman: &Podman, id: &str, script: &str) -> Said {
    podman.podman(&["exec", id, "/bin/sh", "-c", script]).ok()
}

/// It has the one slice there is, and can use it.
#[track_caller]
fn has_the_slice(setup: &Setup, podman: &Podman, container: &str) {
    let (lease, instance) = (setup.the_lease(), setup.machine.the_instance());
    assert_eq!(lease["container"], container);
    assert_eq!(lease["state"], "ready");
    assert_eq!(lease["migUUID"], instance.uuid);
    // An exec gets its environment from podman, which does not know what we put in.
    let init = lease["initPid"].as_i64().unwrap();
    let environ = || std::fs::read_to_string(format!("/proc/{init}/environ")).unwrap();
    // podman does not wait until runc's own init has become the container's program.
    let mut environment = String::new();
    until("its program runs", || {
        environment = environ();
        !environment.is_empty() && !environment.contains("_LIBCONTAINER_")
    });
    let visible = format!("NVIDIA_VISIBLE_DEVICES={}", instance.uuid);
    assert!(
        environment.split('\0').any(|v| v == visible),
        "{environment}"
    );
    let saw = exec(podman, container, SHOW).stdout;
    assert_eq!(nodes(&saw), setup.machine.nodes_of(&instance));
    all_open(&exec(podman, container, OPEN).stdout);
}

#[test]
fn run_gets_and_releases_slice() {
    on_each(Setup::of, |setup, podman| {
        let said = podman.run("run", &["--rm", ASK], SHOW).ok();
        assert!(
            visible(&said.stdout).unwrap().starts_with("MIG-"),
            "{}",
            said.stdout
        );
        assert_eq!(nodes(&said.stdout).len(), NODES, "{}", said.stdout);
        setup.nothing_is_left();
        podman.passed("a slice by annotation");
        if setup.low.is_crun() {
            podman.passed("on crun");
        }
    });
}

#[test]
fn slice_lives_as_long_as_container() {
    on_each(Setup::of, |setup, podman| {
        let script = format!("{SHOW}; sleep 1000");
        let started = podman.run("run", &["--detach", ASK], &script).ok();
        let id = id(&started);
        let instance = setup.machine.the_instance();
        has_the_slice(setup, podman, id);
        podman.passed("exec");

        let saw = || podman.podman(&["logs", id]).ok().stdout;
        until("it printed", || saw().contains("VISIBLE="));
        assert_eq!(visible(&saw()), Some(instance.uuid.as_str()));
        assert_eq!(nodes(&saw()), setup.machine.nodes_of(&instance));
        podman.passed("logs");

        podman.remove(id).ok();
        setup.nothing_is_left();
    });
}

/// Each start is a create of the same id and bundle.
#[test]
fn stop_releases_and_start_takes_another() {
    on_each(Setup::of, |setup, podman| {
        let made = podman.run("create", &[ASK], "exec sleep 1000").ok();
        let id = id(&made);
        setup.nothing_is_left();
        for _ in 0..2 {
            podman.podman(&["start", id]).ok();
            has_the_slice(setup, podman, id);
            podman.podman(&["stop", "--time=0", id]).ok();
            until("the slice is back", || setup.leases().is_empty());
            setup.nothing_is_left();
        }
        podman.passed("stop, start again");
        podman.podman(&["start", id]).ok();
        let before = setup.the_lease();
        podman.podman(&["restart", "--time=0", id]).ok();
        has_the_slice(setup, podman, id);
        assert_ne!(setup.the_lease()["id"], before["id"], "a slice of its own");
        podman.passed("restart");
        // a plain rm, of one that is stopped
        podman.podman(&["stop", "--time=0", id]).ok();
        podman.podman(&["rm", id]).ok();
        setup.nothing_is_left();
    });
}

#[test]
fn removed_while_it_runs() {
    on_each(Setup::of, |setup, podman| {
        let id = sleeping(podman);
        let init = podman.pid(&id, "Pid");
        podman.podman(&["rm", &id]).exits(2);
        has_the_slice(setup, podman, &id);
        podman.remove(&id).ok();
        assert!(!lives(init));
        setup.nothing_is_left();
        podman.passed("remove");
    });
}

/// An update writes the cgroup anew: its devices stay open to it. podman 5.8 updates nothing that was
/// made of a folder, so here is an image.
#[test]
fn updated_and_paused() {
    on_each(Setup::of, |setup, podman| {
        podman.import(IMAGE, &[]);
        let sleep = ["run", "--detach", ASK, IMAGE, "/bin/sleep", "1000"];
        let id = id(&podman.podman(&sleep).ok()).to_owned();
        podman
            .podman(&["update", "--cpu-shares=512", "--memory=64m", &id])
            .ok();
        has_the_slice(setup, podman, &id);
        podman.passed("update");
        podman.podman(&["pause", &id]).ok();
        let instance = setup.machine.the_instance();
        setup.migctl(&["gc"]).ok();
        assert_eq!(setup.machine.the_instance(), instance);
        podman.podman(&["unpause", &id]).ok();
        has_the_slice(setup, podman, &id);
        podman.passed("pause");
        podman.remove(&id).ok();
        setup.nothing_is_left();
    });
}

/// No caller removes the container. Its conmon calls podman, which calls `delete`.
#[test]
fn releases_slice_of_ended_job() {
    on_each(Setup::of, |setup, podman| {
        let made = podman.run("run", &["--detach", ASK], "sleep 0.2").ok();
        until("the slice is back", || setup.leases().is_empty());
        setup.nothing_is_left();
        podman.podman(&["container", "exists", id(&made)]).ok();
        podman.podman(&["rm", id(&made)]).ok();
        podman.passed("a job that ends by itself");
    });
}

/// There is no daemon; what stands between podman and a container is conmon. More of its deaths are
/// in tests/engines/dying.
#[test]
fn conmon_is_killed() {
    on_each(Setup::of, |setup, podman| {
        let id = sleeping(podman);
        let init = podman.pid(&id, "Pid");
        kill(podman.pid(&id, "ConmonPid"));
        assert!(lives(init));
        setup.migctl(&["gc"]).ok();
        assert_eq!(setup.the_lease()["container"], id);
        podman.remove(&id);
        until("it is dead", || !lives(init));
        setup.migctl(&["gc"]).ok();
        setup.nothing_is_left();
        podman.passed("the engine is killed");
    });
}

#[test]
fn gives_two_containers_different_slices() {
    on_each(Setup::of, |setup, podman| {
        let run = |slice: &str| {
            let ask = format!("--annotation=runmig.dev/slice={slice}");
            let started = podman.run("run", &["--detach", &ask], "exec sleep 1000");
            id(&started.ok()).to_owned()
        };
        let ids = [run("1g.10gb"), run("3g.40gb")];
        let mut profiles: Vec<String> = setup
            .machine
            .instances()
            .into_iter()
            .map(|i| i.profile)
            .collect();
        profiles.sort();
        assert_eq!(profiles, ["1g.10gb", "3g.40gb"]);
        let saw = ids
            .each_ref()
            .map(|id| nodes(&exec(podman, id, SHOW).stdout));
        assert_ne!(saw[0], saw[1]);
        ids.iter().for_each(|id| drop(podman.remove(id).ok()));
        setup.nothing_is_left();
    });
}

#[test]
fn exit_codes_and_signals() {
    on_each(Setup::of, |setup, podman| {
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
fn gives_none_without_request() {
    on_each(Setup::of, |setup, podman| {
        let said = podman.run("run", &["--rm"], SHOW).ok();
        assert_eq!(said.stdout, "VISIBLE=\n");
        assert!(!setup.state().exists());
        let none = "--annotation=runmig.dev/slice=none";
        let said = podman.run("run", &["--rm", none], SHOW).ok();
        assert_eq!(said.stdout, "VISIBLE=\n");
        assert!(!setup.state().exists());
        podman.passed("none");
        let asks = ["--rm", "--env=NVIDIA_VISIBLE_DEVICES=all", ASK];
        let said = podman.run("run", &asks, SHOW).ok();
        assert!(
            visible(&said.stdout).unwrap().starts_with("MIG-"),
            "{}",
            said.stdout
        );
    });
}

/// podman calls the hooks of hooks.d itself, when the container is cleaned up; by then the slice is
/// back, and the hook, which has no lease id, finds nothing to do.
#[test]
fn runs_the_hooks_d_example() {
    on_each(Setup::of, |setup, podman| {
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
            run.args([annotation, "--rootfs", &rootfs, "true"]);
            testkit::said(&mut run).ok();
            let seen = std::fs::read_to_string(&seen).unwrap_or_default();
            assert_eq!(seen.contains("called"), calls, "{seen}");
            setup.nothing_is_left();
        }
    });
}
