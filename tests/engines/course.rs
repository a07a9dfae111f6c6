//! One course for every engine: each kind of request through the life of a container, and the refusals, in the words that
//! reach the user.

use testkit::bundle::all_open;
use testkit::cgroup2;
use testkit::cri::{self, Cri, Pod};
use testkit::cuda::{self, CLIENT, Mount};
use testkit::docker::Docker;
use testkit::images::STAYS;
use testkit::podman::{self as podmans, IMAGE, Podman};
use testkit::prelude::*;
use testkit::sharing::{
    Kind, SHARE_AT_DRIVER, SHARE_AT_MPS, SHARE_AT_NONE, SLICE, WHOLE_GPU, daemon, ready,
};

/// An engine under test. Its containers have what a CUDA client needs.
trait Engine {
    /// Starts a container, or returns the words of the refusal.
    fn start(&mut self, asks: &[(&str, &str)], script: &str) -> Result<String, String>;
    fn logs(&self, id: &str) -> String;
    fn exec(&self, id: &str, script: &str) -> String;
    /// Gives it other resources.
    fn update(&self, id: &str);
    /// Pauses it or lets it go on. Returns whether the engine can.
    fn pause(&self, _id: &str, _on: bool) -> bool {
        false
    }
    /// Restarts a container that runs. Returns its id from then on.
    fn restart(&mut self, id: &str) -> String;
    fn stop(&mut self, id: &str);
    /// Starts one that was stopped, or its successor.
    fn start_again(&mut self, id: &str) -> String;
    /// Kills the engine, or its part that watches the container.
    fn kill(&mut self, id: &str);
    /// Starts the engine again.
    fn back(&mut self);
    fn remove(&self, id: &str);
    /// Its name with its version, as in the table of engines.
    fn name(&self) -> String;
}

type Course = fn(&Kind, &Setup, &mut dyn Engine);

/// A container has what it asked for, and a process of `exec` sees it. Returns the lease.
#[track_caller]
fn holds(kind: &Kind, setup: &Setup, engine: &dyn Engine, id: &str) -> Value {
    let lease = ready(setup, id);
    let all = setup.machine.instances();
    let its = all.iter().find(|i| lease["migUUID"] == i.uuid);
    match its {
        Some(instance) => {
            let saw = engine.exec(id, SHOW);
            assert_eq!(nodes(&saw), setup.machine.nodes_of(instance), "{saw}");
            all_open(&engine.exec(id, OPEN));
        }
        None => {
            let script = format!("{} {CLIENT} info 2>&1", cuda::library(&setup.machine));
            assert_eq!(engine.exec(id, &script).trim_end(), kind.info);
        }
    }
    lease
}

/// What the first program of a container printed of its devices.
#[track_caller]
fn printed(engine: &dyn Engine, id: &str) -> String {
    until("it printed", || engine.logs(id).contains("VISIBLE="));
    engine.logs(id)
}

fn life(kind: &Kind, setup: &Setup, engine: &mut dyn Engine) {
    let mut rows = vec![kind.row.to_owned()];
    let script = format!("{SHOW}; {STAYS}");
    let id = engine.start(&[(kind.key, kind.value)], &script).unwrap();
    let first = holds(kind, setup, engine, &id);
    let device = first["migUUID"].as_str().or(first["gpuUUID"].as_str());
    assert_eq!(visible(&printed(engine, &id)), device);
    if kind.updates {
        engine.update(&id);
        assert_eq!(holds(kind, setup, engine, &id)["id"], first["id"]);
        if engine.pause(&id, true) {
            setup.migctl(&["gc"]).ok();
            engine.pause(&id, false);
            assert_eq!(holds(kind, setup, engine, &id)["id"], first["id"]);
            rows.push("pause".to_owned());
        }
    }
    let again = engine.restart(&id);
    // CRI-O deletes the ended container later.
    setup.migctl(&["gc"]).ok();
    let second = holds(kind, setup, engine, &again);
    assert_ne!(second["id"], first["id"], "one of its own");
    assert!(!daemon(&first).is_some_and(lives));
    assert_eq!(setup.the_lease(), second);
    engine.stop(&again);
    until("all is back", || setup.leases().is_empty());
    setup.nothing_is_left();
    let last = engine.start_again(&again);
    let third = holds(kind, setup, engine, &last);
    engine.kill(&last);
    setup.migctl(&["gc"]).ok();
    assert_eq!(ready(setup, &last)["id"], third["id"]);
    engine.back();
    let after = holds(kind, setup, engine, &last);
    assert_eq!(daemon(&after), daemon(&third));
    engine.remove(&last);
    let init = i32::try_from(third["initPid"].as_i64().unwrap()).unwrap();
    until("the container has ended", || !lives(init));
    // CRI-O still has the ended one.
    engine.remove(&id);
    setup.migctl(&["gc"]).ok();
    setup.nothing_is_left();
    match kind.key {
        key if key == SLICE.key => {
            let cases = "exec|logs|update|restart|stop, start again|remove|the engine is killed";
            rows.extend(cases.split('|').map(str::to_owned));
        }
        _ => {
            let of = |case: &str| format!("{}: {case}", kind.row);
            rows.extend(kind.updates.then(|| of("exec, update, restart")));
            rows.push(of("the engine is killed"));
        }
    }
    rows.extend(setup.low.is_crun().then(|| "on crun".to_owned()));
    let name = engine.name();
    rows.iter().for_each(|row| table::passed(&name, row));
}

const NO_ROOM: &str = "runmig: cannot allocate 1g.10gb: too few memory slices are free (0 of 8 on 1 GPU, at most 0 on one); \
     on GPU 0 container ";
const NO_PROFILE: &str =
    "runmig: cannot allocate 9g.90gb: no GPU offers the profile; hint: request one of 7g.80gb, ";
const WAIT_ALONE: &str = "runmig: annotation runmig.dev/wait needs runmig.dev/slice, runmig.dev/share or runmig.dev/gpu; hint: ";

fn refusals(kind: &Kind, setup: &Setup, engine: &mut dyn Engine) {
    let name = engine.name();
    let full = engine.start(&[(kind.key, "7g.80gb")], STAYS).unwrap();
    for (asks, line) in testkit::rows! {
        (kind.key, "1g.10gb") => NO_ROOM;
        (kind.key, "9g.90gb") => NO_PROFILE;
        (kind.key, "1g.10gb*2") => " asks for several slices, and CUDA uses one MIG device in a process; hint: ";
        ("runmig.dev/wait", "5s") => WAIT_ALONE;
    } {
        testkit::has(&engine.start(&[asks], "true").unwrap_err(), line);
        assert_eq!(setup.the_lease()["container"], full);
    }
    engine.remove(&full);
    until("the slice is back", || setup.leases().is_empty());
    for asks in [&[(kind.key, "none")][..], &[]] {
        let id = engine.start(asks, &format!("{SHOW}; {STAYS}")).unwrap();
        assert_eq!(printed(engine, &id), "VISIBLE=\n");
        assert!(setup.leases().is_empty());
        engine.remove(&id);
    }
    for case in ["no room", "a wrong request"] {
        table::passed(&name, &format!("{case}: the user reads why"));
    }
    table::passed(&name, "none");
}

struct OnPodman<'a>(&'a Podman<'a>, Vec<Mount>);

impl Engine for OnPodman<'_> {
    /// podman 5.8 updates no container of a folder, so here is an image.
    fn start(&mut self, asks: &[(&str, &str)], script: &str) -> Result<String, String> {
        self.0.import(IMAGE, &[]);
        let mut run = self.0.command(&["run", "--detach"]);
        let asks = asks.iter();
        run.args(asks.map(|(key, value)| format!("--annotation={key}={value}")));
        let mounts = self.1.iter();
        run.args(mounts.map(|mount| format!("--volume={}", mount.volume())));
        let said = said(run.args([IMAGE, "/bin/sh", "-c", script]));
        match said.status.success() {
            true => Ok(podmans::id(&said).to_owned()),
            false => Err(said.stderr),
        }
    }

    fn logs(&self, id: &str) -> String {
        self.0.podman(&["logs", id]).stdout
    }

    fn exec(&self, id: &str, script: &str) -> String {
        let exec = ["exec", id, "/bin/sh", "-c", script];
        self.0.podman(&exec).ok().stdout
    }

    fn update(&self, id: &str) {
        let options = ["update", "--cpu-shares=512", "--memory=256m", id];
        self.0.podman(&options).ok();
    }

    fn pause(&self, id: &str, on: bool) -> bool {
        let verb = if on { "pause" } else { "unpause" };
        self.0.podman(&[verb, id]).ok();
        true
    }

    fn restart(&mut self, id: &str) -> String {
        self.0.podman(&["restart", "--time=0", id]).ok();
        id.to_owned()
    }

    fn stop(&mut self, id: &str) {
        self.0.podman(&["stop", "--time=0", id]).ok();
    }

    fn start_again(&mut self, id: &str) -> String {
        self.0.podman(&["start", id]).ok();
        id.to_owned()
    }

    /// Between podman and a container stands conmon.
    fn kill(&mut self, id: &str) {
        let conmon = self.0.pid(id, "ConmonPid");
        kill(conmon);
        until("conmon has ended", || !lives(conmon));
    }

    fn back(&mut self) {}

    fn remove(&self, id: &str) {
        self.0.remove(id);
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

fn on_podman(kind: &Kind, course: Course) {
    podmans::on_each(
        // Debian's crun wants CAP_SYS_RESOURCE to load its program for devices.
        |low| (kind.updates || low != Low::Crun).then(|| kind.setup(low)),
        |setup, podman| {
            let mounts = cuda::mounts(&setup.machine);
            course(kind, setup, &mut OnPodman(podman, mounts));
        },
    );
}

struct OnDocker(Docker, Vec<Mount>);

impl Engine for OnDocker {
    fn start(&mut self, asks: &[(&str, &str)], script: &str) -> Result<String, String> {
        let binds: Value = self.1.iter().map(Mount::volume).collect();
        let id = self.0.create_with(asks, script, json!({ "Binds": binds }));
        let said = self.0.post(&id, "start");
        if said.status < 300 {
            return Ok(id);
        }
        self.0.remove(&id);
        Err(said.json()["message"].as_str().unwrap().to_owned())
    }

    fn logs(&self, id: &str) -> String {
        self.0.logs(id)
    }

    fn exec(&self, id: &str, script: &str) -> String {
        self.0.exec(id, script)
    }

    fn update(&self, id: &str) {
        let resources = json!({"CpuShares": 512, "PidsLimit": 100});
        let path = format!("/containers/{id}/update");
        self.0.ask("POST", &path, &resources).ok();
    }

    fn pause(&self, id: &str, on: bool) -> bool {
        self.0.post(id, if on { "pause" } else { "unpause" }).ok();
        true
    }

    fn restart(&mut self, id: &str) -> String {
        self.0.post(id, "restart?t=0").ok();
        id.to_owned()
    }

    fn stop(&mut self, id: &str) {
        self.0.post(id, "stop?t=0").ok();
    }

    fn start_again(&mut self, id: &str) -> String {
        self.0.post(id, "start").ok();
        id.to_owned()
    }

    fn kill(&mut self, _: &str) {
        self.0.kill_dockerd();
        self.0.kill_containerd();
    }

    fn back(&mut self) {
        self.0.start_containerd();
        self.0.start_dockerd();
    }

    fn remove(&self, id: &str) {
        let path = format!("/containers/{id}?force=true");
        self.0.ask("DELETE", &path, &Value::Null);
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

/// A docker with live-restore, whose containers outlive it.
fn on_docker(low: Low, kind: &Kind, course: Course) {
    if low.find().is_none() {
        return;
    }
    let setup = kind.setup(low);
    if let Some(docker) = Docker::start(&setup, true) {
        let mounts = cuda::mounts(&setup.machine);
        course(kind, &setup, &mut OnDocker(docker, mounts));
    }
}

struct OnCri<'a> {
    cri: Cri<'a>,
    /// The pod of the last container, and how many containers it has had.
    pod: Option<(Pod, u32)>,
}

impl OnCri<'_> {
    fn next(&mut self) -> String {
        let (pod, count) = self.pod.as_mut().unwrap();
        *count += 1;
        self.cri.run(pod, &format!("web#{count}"), STAYS)
    }
}

impl Engine for OnCri<'_> {
    fn start(&mut self, asks: &[(&str, &str)], script: &str) -> Result<String, String> {
        let pod = self.cri.pod(asks);
        let id = self.cri.try_run(&pod, "web", script, &[])?;
        self.pod = Some((pod, 0));
        Ok(id)
    }

    fn logs(&self, id: &str) -> String {
        self.cri.logs(id)
    }

    fn exec(&self, id: &str, script: &str) -> String {
        let arguments = ["exec", "--sync", id, "/bin/sh", "-c", script];
        self.cri.crictl(&arguments).ok().stdout
    }

    fn update(&self, id: &str) {
        let options = ["update", "--cpu-share=512", "--memory=256000000", id];
        self.cri.crictl(&options).ok();
    }

    /// As the kubelet restarts a failed container. The dead one stays, so that its logs can be read.
    fn restart(&mut self, id: &str) -> String {
        let init = ready(self.cri.setup, id)["initPid"].as_i64().unwrap();
        kill(i32::try_from(init).unwrap());
        until("it has ended", || self.cri.state(id) == "CONTAINER_EXITED");
        self.next()
    }

    /// A container that was stopped cannot be started; the kubelet makes another in its pod.
    fn stop(&mut self, id: &str) {
        self.cri.crictl(&["stop", "--timeout=10", id]).ok();
        assert!(!self.cri.crictl(&["start", id]).status.success());
        self.cri.crictl(&["rm", id]).ok();
    }

    fn start_again(&mut self, _: &str) -> String {
        self.next()
    }

    fn kill(&mut self, _: &str) {
        self.cri.kill();
    }

    fn back(&mut self) {
        self.cri.up();
    }

    fn remove(&self, id: &str) {
        self.cri.crictl(&["rm", "--force", id]);
    }

    fn name(&self) -> String {
        self.cri.name()
    }
}

fn on_cri(engine: cri::Engine, low: Low, kind: &Kind, course: Course) {
    if low.find().is_none() {
        return;
    }
    let setup = kind.setup(low);
    if let Some(mut cri) = Cri::start(engine, &setup) {
        cri.mounts = cuda::mounts(&setup.machine);
        let mut engine = OnCri { cri, pod: None };
        course(kind, &setup, &mut engine);
        engine.cri.remove_all();
        setup.nothing_is_left();
    }
}

macro_rules! courses {
    ($($engine:ident: $on:expr;)+) => {$(
        mod $engine {
            use super::*;

            testkit::tests! {
                keeps_slice: $on(&SLICE, life as Course);
                keeps_share_at_none: $on(&SHARE_AT_NONE, life as Course);
                keeps_share_at_mps: $on(&SHARE_AT_MPS, life as Course);
            }

            #[test]
            fn keeps_share_at_driver() {
                cgroup2::enter();
                $on(&SHARE_AT_DRIVER, life as Course);
            }

            testkit::tests! {
                keeps_whole_gpu: $on(&WHOLE_GPU, life as Course);
                tells_why_it_refuses: $on(&SLICE, refusals as Course);
            }
        }
    )+};
}

courses! {
    podman: on_podman;
    docker: |kind, course| on_docker(Low::NewRunc, kind, course);
    containerd_1: |kind, course| on_cri(cri::Engine::Containerd1, Low::Runc, kind, course);
    containerd_2: |kind, course| on_cri(cri::Engine::Containerd2, Low::Runc, kind, course);
    cri_o: |kind, course| on_cri(cri::Engine::Crio, Low::Runc, kind, course);
}

/// Debian's crun is too old for the specifications of the newer engines.
#[test]
fn keeps_slice_on_crun() {
    on_docker(Low::NewCrun, &SLICE, life);
    for (low, engine) in [
        (Low::Crun, cri::Engine::Containerd1),
        (Low::NewCrun, cri::Engine::Containerd2),
        (Low::NewCrun, cri::Engine::Crio),
    ] {
        on_cri(engine, low, &SLICE, life);
    }
}
