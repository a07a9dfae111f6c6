//! The output of `podman run` without a container.

use crate::e2e_podman::ASK;
use testkit::podman::on_each;
use testkit::{Podman, Setup, said};

/// It prints one line, be the runtime one that podman's configuration knows or one that was named by
/// its path, of which podman does not know that it writes JSON.
#[track_caller]
fn refused(podman: &Podman, options: &[&str], line: &str) {
    let (path, rootfs) = (podman.path().to_str().unwrap(), podman.rootfs());
    for runtime in ["runmig", path] {
        let mut run = podman.command(&["--runtime", runtime, "run", "--rm"]);
        run.args(options).args(["--rootfs", &rootfs, "true"]);
        let said = said(&mut run).exits(126);
        let wanted = format!("Error: OCI runtime error: {runtime}: runmig: {line}\n");
        assert_eq!(said.stderr, wanted);
    }
}

#[test]
fn reports_no_room() {
    on_each(Setup::of, |setup, podman| {
        let whole = "--annotation=runmig.dev/slice=7g.80gb";
        for _ in 0..2 {
            podman.run("run", &["--detach", whole], "sleep 1000").ok();
        }
        refused(
            podman,
            &[ASK],
            "cannot allocate 1g.10gb: too few memory slices are free (0 of 16 on 2 GPUs, at \
             most 0 on one); hint: run migctl list to see who holds the slices, or set \
             runmig.dev/wait to wait",
        );
        assert_eq!(setup.leases().len(), 2);
        podman.podman(&["rm", "--all", "--force", "--time=0"]).ok();
        setup.nothing_is_left();
        podman.passed("no room: the user reads why");
    });
}

#[test]
fn refuses_bad_requests() {
    on_each(Setup::of, |setup, podman| {
        let annotation = |text: &str| format!("--annotation={text}");
        for (asks, line) in [
            (
                "runmig.dev/slice=9g.90gb",
                "cannot allocate 9g.90gb: no GPU offers the profile; hint: request one of 7g.80gb, 4g.40gb, \
                 3g.40gb, 2g.20gb, 1g.20gb, 1g.10gb, 1g.10gb+me (nearest first)",
            ),
            (
                "runmig.dev/slice=all",
                "annotation runmig.dev/slice: \"all\" is neither a profile nor an amount of memory; \
                 hint: ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none",
            ),
            (
                "runmig.dev/wait=5s",
                "annotation runmig.dev/wait needs runmig.dev/slice, runmig.dev/share or runmig.dev/gpu; hint: add \
                 runmig.dev/slice, runmig.dev/share or runmig.dev/gpu, or take runmig.dev/wait away",
            ),
        ] {
            refused(podman, &[&annotation(asks)], line);
        }
        podman.passed("a wrong request: the user reads why");
        // podman tells the runtime no name, not even one that was given.
        refused(
            podman,
            &["--name=main", &annotation("slice.runmig.dev/main=1g.10gb")],
            "annotation slice.runmig.dev/main is for a container by name, but the engine gave this \
             one no name; hint: use runmig.dev/slice",
        );
        setup.nothing_is_left();
    });
}

#[test]
fn refuses_privileged_container() {
    on_each(Setup::of, |setup, podman| {
        refused(
            podman,
            &["--privileged", ASK],
            "device rule linux.resources.devices[0] (allow a *:* rwm) lets the container open \
             NVIDIA devices that are not in its slice, 195:1 for one; hint: run it unprivileged, \
             with rules for the devices that it needs",
        );
        setup.nothing_is_left();
    });
}
