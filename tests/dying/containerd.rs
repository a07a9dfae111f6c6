//! A real engine: containerd and its shims, killed while containers run.

use crate::support::process::{in_cgroup, kill, lives, parent, until};
use crate::support::runtimes::on_path;
use crate::support::{Going, Low, Said, Setup, bundle, going, said, skip, unique};
use crate::victim::{keeps_its_slice, setup, the_next_create_has_room};
use std::path::PathBuf;
use std::process::Stdio;

struct Containerd<'a> {
    setup: &'a Setup,
    engine: Option<Going>,
    ids: Vec<String>,
}

impl<'a> Containerd<'a> {
    fn new(setup: &'a Setup) -> Option<Containerd<'a>> {
        if on_path("containerd").is_none() || on_path("ctr").is_none() {
            skip("containerd is not there: apt-get install containerd");
            return None;
        }
        bundle::rootfs(&setup.path("rootfs"));
        let at = |name: &str| setup.path(name).display().to_string();
        let text = format!(
            "version = 2\nroot = \"{}\"\nstate = \"{}\"\noom_score = 0\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.internal.v1.opt\"]\n\
             [grpc]\naddress = \"{}\"\n",
            at("containerd"),
            at("containerd-state"),
            at("socket"),
        );
        std::fs::write(setup.path("containerd.toml"), text).unwrap();
        let mut containerd = Containerd {
            setup,
            engine: None,
            ids: Vec::new(),
        };
        containerd.start();
        Some(containerd)
    }

    fn start(&mut self) {
        let mut engine = self.setup.plain("containerd".as_ref());
        engine.arg("-c").arg(self.setup.path("containerd.toml"));
        self.engine = Some(going(engine.stdin(Stdio::null())));
        until("containerd answers", || {
            self.ctr(&["version"]).status.success()
        });
    }

    fn kill(&mut self) {
        self.engine.take().unwrap().kill();
    }

    fn socket(&self) -> PathBuf {
        self.setup.path("socket")
    }

    fn ctr(&self, arguments: &[&str]) -> Said {
        let mut ctr = self.setup.plain("ctr".as_ref());
        ctr.arg("--address").arg(self.socket()).args(arguments);
        said(&mut ctr)
    }

    // docs/engines.md: ctr run --rootfs --runc-binary /usr/local/bin/runmig --annotation runmig.dev/slice=1g.10gb ROOTFS ID COMMAND
    /// A container that sleeps; its id, its init and its shim.
    fn run(&mut self) -> (String, i32, i32) {
        let id = unique();
        let path = |path: PathBuf| path.display().to_string();
        let runtime = path(self.setup.program("runmig"));
        let (root, rootfs) = (
            path(self.setup.root("ctr")),
            path(self.setup.path("rootfs")),
        );
        self.ids.push(id.clone());
        self.ctr(&[
            "run",
            "--detach",
            "--null-io",
            "--rootfs",
            "--runc-binary",
            &runtime,
            "--runc-root",
            &root,
            "--annotation",
            "runmig.dev/slice=1g.10gb",
            &rootfs,
            &id,
            "/bin/sleep",
            "1000",
        ])
        .ok();
        let lease = self.setup.the_lease();
        assert_eq!(lease["state"], "ready");
        let init = lease["initPid"].as_i64().unwrap() as i32;
        let shim = parent(init).unwrap();
        (id, init, shim)
    }
}

impl Drop for Containerd<'_> {
    fn drop(&mut self) {
        self.engine = None;
        for id in &self.ids {
            for init in in_cgroup(&format!("/default/{id}")) {
                let shim = parent(init);
                kill(init);
                if let Some(shim) = shim.filter(|pid| *pid > 1 && is_shim(*pid)) {
                    kill(shim);
                }
            }
        }
        // What a shim binds.
        for id in &self.ids {
            let task =
                format!("containerd-state/io.containerd.runtime.v2.task/default/{id}/rootfs");
            let _ = std::process::Command::new("umount")
                .arg(self.setup.path(&task))
                .output();
        }
    }
}

fn is_shim(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.contains("shim"))
}

fn with(test: impl Fn(&Setup, &mut Containerd)) {
    let Some(setup) = setup(Low::Runc) else {
        return;
    };
    let Some(mut containerd) = Containerd::new(&setup) else {
        return;
    };
    test(&setup, &mut containerd);
}

#[test]
fn both_are_killed_and_nobody_comes_back() {
    with(|setup, containerd| {
        let (id, init, shim) = containerd.run();
        assert!(is_shim(shim));
        keeps_its_slice(setup, &id);
        containerd.kill();
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
fn both_are_killed_and_containerd_comes_back() {
    with(|setup, containerd| {
        let (id, _, shim) = containerd.run();
        containerd.kill();
        kill(shim);
        keeps_its_slice(setup, &id);
        containerd.start();
        until("the slice is back", || setup.leases().is_empty());
        setup.nothing_is_left();
    });
}

/// containerd sees that, and deletes the container at once.
#[test]
fn the_shim_is_killed() {
    with(|setup, containerd| {
        let (_, init, shim) = containerd.run();
        kill(shim);
        until("the slice is back", || setup.leases().is_empty());
        assert!(!lives(init));
        setup.nothing_is_left();
    });
}

/// The shim stays, and so does all else.
#[test]
fn containerd_is_killed_and_comes_back() {
    with(|setup, containerd| {
        let (id, _, shim) = containerd.run();
        containerd.kill();
        keeps_its_slice(setup, &id);
        containerd.start();
        assert!(lives(shim));
        keeps_its_slice(setup, &id);
        containerd.ctr(&["task", "rm", "--force", &id]).ok();
        setup.nothing_is_left();
    });
}
