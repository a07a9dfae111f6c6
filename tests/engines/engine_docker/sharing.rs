//! Shares and whole GPUs through the life of a container of docker.

use serde_json::{Value, json};
use testkit::cuda;
use testkit::docker::{Docker, on_setup};
use testkit::sharing::{Engine, Kind, SHARE_AT_DRIVER, SHARE_AT_MPS, SHARE_AT_NONE, WHOLE_GPU};
use testkit::{Low, Setup, cgroup2};

/// Containers of a docker with live-restore, which outlive it.
struct WithClient<'a> {
    setup: &'a Setup,
    docker: &'a mut Docker,
}

impl Engine for WithClient<'_> {
    fn start(&mut self, key: &str, value: &str) -> String {
        let mounts = cuda::mounts(&self.setup.machine);
        let binds: Value = mounts.iter().map(cuda::Mount::volume).collect();
        let more = json!({ "Binds": binds });
        let id = self
            .docker
            .create_with(&[(key, value)], "exec sleep 1000", more);
        self.docker.post(&id, "start").ok();
        id
    }

    fn exec(&self, id: &str, script: &str) -> String {
        self.docker.exec(id, script)
    }

    fn update(&self, id: &str) {
        let path = format!("/containers/{id}/update");
        let resources = json!({"CpuShares": 512, "PidsLimit": 100});
        self.docker.ask("POST", &path, &resources).ok();
    }

    fn restart(&mut self, id: &str) -> String {
        self.docker.post(id, "restart?t=0").ok();
        id.to_owned()
    }

    fn kill(&mut self, _: &str) {
        self.docker.kill_dockerd();
        self.docker.kill_containerd();
    }

    fn back(&mut self) {
        self.docker.start_containerd();
        self.docker.start_dockerd();
    }

    fn remove(&self, id: &str) {
        let path = format!("/containers/{id}?force=true");
        self.docker.ask("DELETE", &path, &Value::Null);
    }

    fn passed(&self, case: &str) {
        self.docker.passed(case);
    }
}

fn through_its_life(kind: Kind) {
    with_client(kind, |setup, engine| {
        kind.exec_update_restart(setup, engine);
        kind.killed_engine(setup, engine);
    });
}

fn with_client(kind: Kind, test: impl Fn(&Setup, &mut WithClient)) {
    let Some(setup) = kind.setup(Low::NewRunc) else {
        return;
    };
    on_setup(&setup, true, |setup: &Setup, docker: &mut Docker| {
        test(setup, &mut WithClient { setup, docker });
    });
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
    with_client(kind, |setup, engine| {
        kind.exec_restart(setup, engine);
        kind.killed_engine(setup, engine);
    });
}

#[test]
fn keeps_whole_gpu() {
    through_its_life(WHOLE_GPU);
}
