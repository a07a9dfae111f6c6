//! The output of `podman run` without a container.

use testkit::podman::on_each;
use testkit::prelude::*;

/// It prints one line, be the runtime one that podman's configuration knows or one that was named by
/// its path, of which podman does not know that it writes JSON.
#[test]
fn prints_one_line() {
    on_each(Setup::of, |setup, podman| {
        let (path, rootfs) = (podman.path().to_str().unwrap(), podman.rootfs());
        for (options, line) in testkit::rows! {
            // podman tells the runtime no name, not even one that was given.
            ["--name=main", "--annotation=slice.runmig.dev/main=1g.10gb"] =>
                "annotation slice.runmig.dev/main is for a container by name, but the engine gave this one no name; hint: use \
                 runmig.dev/slice";
            ["--privileged", crate::e2e_podman::ASK] =>
                "device rule linux.resources.devices[0] (allow a *:* rwm) lets the container open NVIDIA devices that it was not \
                 given, 195:1 for one; hint: run it unprivileged, with rules for the devices that it needs";
        } {
            for runtime in ["runmig", path] {
                let mut run = podman.command(&["--runtime", runtime, "run", "--rm"]);
                run.args(options).args(["--rootfs", &rootfs, "true"]);
                let said = said(&mut run).exits(126);
                let wanted = format!("Error: OCI runtime error: {runtime}: runmig: {line}\n");
                assert_eq!(said.stderr, wanted);
            }
        }
        setup.nothing_is_left();
    });
}
