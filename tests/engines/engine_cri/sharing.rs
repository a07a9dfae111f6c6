//! Shares and whole GPUs through the life of a container of the engines of Kubernetes.

use testkit::cri::{Cri, Engine as Name, Pod};
use testkit::cuda;
use testkit::images::STAYS;
use testkit::process::{kill, until};
use testkit::sharing::{
    Engine, Kind, SHARE_AT_DRIVER, SHARE_AT_MPS, SHARE_AT_NONE, WHOLE_GPU, ready,
};
use testkit::{Low, Setup, cgroup2};

macro_rules! on_every_engine {
    ($($module:ident $engine:ident),+) => {
        $(mod $module {
            use super::*;

            #[test]
            fn keeps_share_at_none() {
                through_its_life(Name::$engine, SHARE_AT_NONE);
            }

            #[test]
            fn keeps_share_at_mps() {
                through_its_life(Name::$engine, SHARE_AT_MPS);
            }

            #[test]
            fn keeps_share_at_driver() {
                cgroup2::enter();
                with_client(Name::$engine, SHARE_AT_DRIVER, |setup, engine| {
                    SHARE_AT_DRIVER.exec_restart(setup, engine);
                    SHARE_AT_DRIVER.killed_engine(setup, engine);
                });
            }

            #[test]
            fn keeps_whole_gpu() {
                through_its_life(Name::$engine, WHOLE_GPU);
            }
        })+
    };
}

on_every_engine! { containerd_1 Containerd1, containerd_2 Containerd2, cri_o Crio }

struct WithClient<'a> {
    setup: &'a Setup,
    cri: Cri<'a>,
    pod: Option<Pod>,
}

impl Engine for WithClient<'_> {
    fn start(&mut self, key: &str, value: &str) -> String {
        let pod = self.cri.pod(&[(key, value)]);
        let id = self.cri.run(&pod, "web", STAYS);
        self.pod = Some(pod);
        id
    }

    fn exec(&self, id: &str, script: &str) -> String {
        let arguments = ["exec", "--sync", id, "/bin/sh", "-c", script];
        self.cri.crictl(&arguments).ok().stdout
    }

    fn update(&self, id: &str) {
        let options = ["update", "--cpu-share=512", "--memory=256000000", id];
        self.cri.crictl(&options).ok();
    }

    /// As the kubelet restarts a failed container.
    fn restart(&mut self, id: &str) -> String {
        let init = ready(self.setup, id)["initPid"].as_i64().unwrap();
        kill(i32::try_from(init).unwrap());
        until("it has ended", || self.cri.state(id) == "CONTAINER_EXITED");
        self.cri.run(self.pod.as_ref().unwrap(), "web#1", STAYS)
    }

    fn kill(&mut self, _: &str) {
        self.cri.kill();
    }

    fn back(&mut self) {
        self.cri.up();
    }

    fn remove(&self, id: &str) {
        self.cri.crictl(&["rm", "--force", id]).ok();
    }

    fn passed(&self, case: &str) {
        crate::engine_cri::passed(&self.cri, case);
    }
}

fn through_its_life(engine: Name, kind: Kind) {
    with_client(engine, kind, |setup, engine| {
        kind.exec_update_restart(setup, engine);
        kind.killed_engine(setup, engine);
    });
}

fn with_client(engine: Name, kind: Kind, test: impl FnOnce(&Setup, &mut WithClient)) {
    let Some(setup) = kind.setup(Low::Runc) else {
        return;
    };
    let Some(mut cri) = Cri::start(engine, &setup) else {
        return;
    };
    cri.mounts = cuda::mounts(&setup.machine);
    let mut engine = WithClient {
        setup: &setup,
        cri,
        pod: None,
    };
    test(&setup, &mut engine);
    engine.cri.remove_all();
}
