//! A real engine: podman, its conmon and what they start, killed.

use crate::dying::victim::{keeps_its_slice, setup, the_next_create_has_room};
use testkit::podman::{id, on_each};
use testkit::prelude::*;

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
            has(&restored.stderr, "cannot be restored");
        } else {
            keeps_its_slice(setup, &id);
        }
        podman.remove(&id);
        setup.migctl(&["gc"]).ok();
        setup.nothing_is_left();
    });
}
