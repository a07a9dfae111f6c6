//! A wait for room whose container is gone.

use testkit::podman::on_each;
use testkit::prelude::*;

/// Its create is conmon's child, and outlives podman.
/// Failure: a kill of podman while a create waits for room, and a removal of its container
#[test]
fn removed_container_stops_waiting() {
    on_each(Setup::of, |setup, podman| {
        let whole = "--annotation=runmig.dev/slice=7g.80gb";
        for _ in 0..2 {
            podman.run("run", &["--detach", whole], "sleep 1000").ok();
        }
        let is_waiting = || {
            let list = setup.migctl(&["list", "-o", "json"]).json();
            !list["waiting"].as_array().unwrap().is_empty()
        };
        let mut run = podman.command(&["--runtime", "runmig", "run", "--name=waiter"]);
        run.args([whole, "--annotation=runmig.dev/wait=10m"]);
        run.args(["--rootfs", &podman.rootfs(), "true"]);
        let waiter = going(&mut run);
        until("it waits", is_waiting);
        let table = setup.tells(&["list"]);
        let (_, queue) = table.split_once("\nWAITING ").unwrap();
        has(queue, "  waiter  7g.80gb  ");
        let waits = setup.migctl(&["release", "waiter"]).exits(1).stderr;
        has(&waits, "it waits for 7g.80gb");
        waiter.kill();
        podman.podman(&["rm", "--force", "waiter"]).ok();
        until("it waits no more", || !is_waiting());
        podman.podman(&["rm", "--all", "--force", "--time=0"]).ok();
        setup.nothing_is_left();
    });
}

/// podman holds signals back until the create ends, and then has no reason to name.
/// Failure: a user ends a wait for room under podman
#[test]
fn signal_to_the_create_ends_the_wait() {
    on_each(Setup::of, |setup, podman| {
        let whole = "--annotation=runmig.dev/slice=7g.80gb";
        for _ in 0..2 {
            podman.run("run", &["--detach", whole], "sleep 1000").ok();
        }
        let waiting = || setup.migctl(&["list", "-o", "json"]).json()["waiting"][0].clone();
        let mut run = podman.command(&["--runtime", "runmig", "run"]);
        run.args([whole, "--annotation=runmig.dev/wait=10m"]);
        run.args(["--rootfs", &podman.rootfs(), "true"]);
        let waiter = going(&mut run);
        until("it waits", || waiting().is_object());
        let id = waiting()["container"].as_str().unwrap().to_owned();
        let is_create = |pid: &i32| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            comm.starts_with("runmig")
        };
        let create = with_argument(&id).into_iter().find(is_create).unwrap();
        // By the words of the line.
        let end = format!("kill {create}");
        said(Command::new("sh").args(["-c", &end])).ok();
        let ended = waiter.end();
        assert_ne!(ended.status.code(), Some(0));
        let line =
            format!("waits up to 3m 40s for 7g.80gb; hint: to end the wait, run kill {create}");
        has(&ended.stderr, &line);
        podman.podman(&["rm", "--all", "--force", "--time=0"]).ok();
        setup.nothing_is_left();
    });
}
