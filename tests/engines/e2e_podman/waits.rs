//! A wait for room whose container is gone.

use testkit::podman::on_each;
use testkit::prelude::*;

const WHOLE: &str = "--annotation=runmig.dev/slice=7g.80gb";

/// Runs containers that have all GPUs, and one that waits for one of them. Returns podman and the container's entry in the queue.
fn waiting(setup: &Setup, podman: &Podman, options: &[&str]) -> (Going, Value) {
    for _ in setup.leases().len()..2 {
        podman.run("run", &["--detach", WHOLE], "sleep 1000").ok();
    }
    let mut run = podman.command(&[&["--runtime", "runmig", "run"], options].concat());
    run.args([WHOLE, "--annotation=runmig.dev/wait=10m"]);
    run.args(["--rootfs", &podman.rootfs(), "true"]);
    let waiter = going(&mut run);
    until("it waits", || queued(setup).is_object());
    (waiter, queued(setup))
}

/// The first in the queue.
fn queued(setup: &Setup) -> Value {
    let list = setup.migctl(&["list", "-o", "json"]).json();
    let waiting = list["waiting"].as_array().unwrap();
    waiting.first().cloned().unwrap_or_default()
}

fn ends(setup: &Setup, podman: &Podman) {
    podman.podman(&["rm", "--all", "--force", "--time=0"]).ok();
    setup.nothing_is_left();
}

/// Its create is conmon's child, and outlives podman.
/// Failure: a kill of podman while a create waits for room, and a removal of its container
#[test]
fn removed_container_stops_waiting() {
    on_each(Setup::of, |setup, podman| {
        let (waiter, _) = waiting(setup, podman, &["--name=waiter"]);
        let table = setup.tells(&["list"]);
        let (_, queue) = table.split_once("\nWAITING ").unwrap();
        has(queue, "  waiter  7g.80gb  ");
        let waits = setup.migctl(&["release", "waiter"]).exits(1).stderr;
        has(&waits, "it waits for 7g.80gb");
        waiter.kill();
        podman.podman(&["rm", "--force", "waiter"]).ok();
        until("it waits no more", || queued(setup).is_null());
        ends(setup, podman);
    });
}

/// podman holds signals back until the create ends, and then has no reason to name.
/// Failure: a user ends a wait for room under podman
#[test]
fn signal_to_the_create_ends_the_wait() {
    on_each(Setup::of, |setup, podman| {
        let killed = || {
            let (waiter, queued) = waiting(setup, podman, &[]);
            let id = queued["container"].as_str().unwrap();
            let comm =
                |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let mut pids = with_argument(id).into_iter();
            let create = pids.find(|pid| comm(pid).starts_with("runmig")).unwrap();
            // By the words of the line.
            let end = format!("kill {create}");
            said(Command::new("sh").args(["-c", &end])).ok();
            let ended = waiter.end();
            assert_ne!(ended.status.code(), Some(0));
            (end, ended.stderr)
        };
        // podman may lose what a create says on a busy machine: its issue 10927.
        let told = |(_, said): &(String, String)| !said.contains("no logs from conmon");
        let (end, said) = (0..3).map(|_| killed()).find(told).unwrap();
        let line = format!("waits up to 3m 40s for 7g.80gb; hint: to end the wait, run {end}");
        has(&said, &line);
        ends(setup, podman);
    });
}
