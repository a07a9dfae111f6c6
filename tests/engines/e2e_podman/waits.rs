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
        waiter.kill();
        podman.podman(&["rm", "--force", "waiter"]).ok();
        until("it waits no more", || !is_waiting());
        podman.podman(&["rm", "--all", "--force", "--time=0"]).ok();
        setup.nothing_is_left();
    });
}
