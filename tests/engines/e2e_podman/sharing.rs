//! Shares and whole GPUs through the life of a container of podman.

use testkit::cuda;
use testkit::podman::{IMAGE, id, on_each};
use testkit::process::{kill, lives, until};
use testkit::sharing::{Engine, Kind, SHARE_AT_DRIVER, SHARE_AT_MPS, SHARE_AT_NONE, WHOLE_GPU};
use testkit::{Low, Podman, Setup, cgroup2};

struct WithClient<'a> {
    setup: &'a Setup,
    podman: &'a Podman<'a>,
}

impl Engine for WithClient<'_> {
    /// podman 5.8 updates no container of a folder, so here is an image.
    fn start(&mut self, key: &str, value: &str) -> String {
        self.podman.import(IMAGE, &[]);
        let ask = format!("--annotation={key}={value}");
        let mut run = self.podman.command(&["run", "--detach", &ask]);
        for mount in cuda::mounts(&self.setup.machine) {
            run.arg(format!("--volume={}", mount.volume()));
        }
        run.args([IMAGE, "/bin/sleep", "1000"]);
        id(&testkit::said(&mut run).ok()).to_owned()
    }

    fn exec(&self, id: &str, script: &str) -> String {
        crate::e2e_podman::exec(self.podman, id, script).stdout
    }

    fn update(&self, id: &str) {
        let options = ["update", "--cpu-shares=512", "--memory=256m", id];
        self.podman.podman(&options).ok();
    }

    fn restart(&mut self, id: &str) -> String {
        self.podman.podman(&["restart", "--time=0", id]).ok();
        id.to_owned()
    }

    /// Between podman and a container stands conmon.
    fn kill(&mut self, id: &str) {
        let conmon = self.podman.pid(id, "ConmonPid");
        kill(conmon);
        until("conmon has ended", || !lives(conmon));
    }

    fn back(&mut self) {}

    fn remove(&self, id: &str) {
        self.podman.remove(id);
    }

    fn passed(&self, case: &str) {
        self.podman.passed(case);
    }
}

fn through_its_life(kind: Kind) {
    on_each(
        |low| kind.setup(low),
        |setup, podman| {
            let mut engine = WithClient { setup, podman };
            kind.exec_update_restart(setup, &mut engine);
            kind.killed_engine(setup, &mut engine);
        },
    );
}

#[test]
fn keeps_share_at_none() {
    through_its_life(SHARE_AT_NONE);
}

#[test]
fn keeps_share_at_mps() {
    through_its_life(SHARE_AT_MPS);
}

#[test]
fn keeps_share_at_driver() {
    cgroup2::enter();
    let kind = SHARE_AT_DRIVER;
    on_each(
        // Debian's crun wants CAP_SYS_RESOURCE to load its program for devices.
        |low| (low != Low::Crun).then(|| kind.setup(low))?,
        |setup, podman| {
            let mut engine = WithClient { setup, podman };
            kind.exec_restart(setup, &mut engine);
            kind.killed_engine(setup, &mut engine);
        },
    );
}

#[test]
fn keeps_whole_gpu() {
    through_its_life(WHOLE_GPU);
}
