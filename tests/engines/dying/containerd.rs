//! A real engine: containerd and its shims, killed while containers run.

use crate::dying::victim::{keeps_its_slice, setup, the_next_create_has_room};
use testkit::bundle;
use testkit::containerd::{ctr, forget_shim};
use testkit::cri::{Cri, Engine};
use testkit::prelude::*;
use testkit::process::parent;

struct Containerd<'a> {
    cri: Cri<'a>,
    ids: Vec<String>,
}

impl<'a> Containerd<'a> {
    fn new(engine: Engine, setup: &'a Setup) -> Option<Containerd<'a>> {
        let cri = Cri::start(engine, setup)?;
        bundle::rootfs(&setup.path("rootfs"));
        let ids = Vec::new();
        Some(Containerd { cri, ids })
    }

    // docs/engines.md: ctr run --rootfs --runc-binary /usr/local/bin/runmig --annotation runmig.dev/slice=1g.10gb ROOTFS ID COMMAND
    /// A container that sleeps; its id, its init and its shim.
    fn run(&mut self) -> (String, i32, i32) {
        let (id, setup) = (unique(), self.cri.setup);
        self.ids.push(id.clone());
        let arguments = format!(
            "run --detach --null-io --rootfs --runc-binary {} --runc-root {} --annotation runmig.dev/slice=1g.10gb {} \
             {id} /bin/sleep 1000",
            self.cri.runtime.program.display(),
            setup.root("ctr").display(),
            setup.path("rootfs").display(),
        );
        ctr(&self.cri, &arguments.split(' ').collect::<Vec<_>>()).ok();
        let lease = setup.the_lease();
        assert_eq!(lease["state"], "ready");
        let init = lease["initPid"].as_i64().unwrap() as i32;
        let shim = parent(init).unwrap();
        (id, init, shim)
    }
}

impl Drop for Containerd<'_> {
    fn drop(&mut self) {
        for id in &self.ids {
            for init in in_cgroup(&format!("/default/{id}")) {
                kill(init);
            }
            forget_shim(&self.cri, "default", id);
        }
    }
}

fn is_shim(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.contains("shim"))
}

fn with(test: impl Fn(&Setup, &mut Containerd)) {
    for engine in [Engine::Containerd1, Engine::Containerd2] {
        let setup = setup(Low::Runc);
        if let Some(mut containerd) = Containerd::new(engine, &setup) {
            test(&setup, &mut containerd);
        }
    }
}

#[test]
fn kills_both_and_restarts_nothing() {
    with(|setup, containerd| {
        let (id, init, shim) = containerd.run();
        assert!(is_shim(shim));
        keeps_its_slice(setup, &id);
        containerd.cri.kill();
        keeps_its_slice(setup, &id);
        kill(shim);
        keeps_its_slice(setup, &id);
        assert!(lives(init));
        kill(init);
        the_next_create_has_room(setup);
    });
}

/// After its restart it deletes what has no shim any more.
#[test]
fn kills_both_and_restarts_containerd() {
    with(|setup, containerd| {
        let (id, _, shim) = containerd.run();
        containerd.cri.kill();
        kill(shim);
        keeps_its_slice(setup, &id);
        containerd.cri.up();
        until("the slice is back", || setup.leases().is_empty());
        setup.nothing_is_left();
    });
}

/// containerd sees that, and deletes the container at once.
#[test]
fn kills_the_shim() {
    with(|setup, containerd| {
        let (_, init, shim) = containerd.run();
        kill(shim);
        until("the slice is back", || setup.leases().is_empty());
        assert!(!lives(init));
        setup.nothing_is_left();
    });
}
