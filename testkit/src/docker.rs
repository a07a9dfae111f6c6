//! dockerd and the containerd below it, current ones, with everything in a folder of their own and
//! the configuration that is shipped. The tests ask the API in the client's place.
//!
//! ```text
//! DIR/daemon.json         the runtime
//! DIR/docker.sock, DIR/containerd.sock
//! DIR/root, DIR/exec      dockerd's; DIR/c-root, DIR/c-state: containerd's
//! ```

use super::bundle::rootfs;
use super::http::{Answer, call};
use super::leftovers::{remove_cgroup, unmount_below};
use super::named::Named;
use super::process::parent;
use crate::prelude::*;

pub struct Docker {
    dir: TempDir,
    runmig: Named,
    live_restore: bool,
    containerd: Option<Going>,
    dockerd: Option<Going>,
}

pub const IMAGE: &str = "runmig:e2e";

/// One with live-restore, in which containers outlive their engine, or one without.
pub fn with(live_restore: bool, test: impl Fn(&Setup, &mut Docker)) {
    with_low(Low::NewRunc, live_restore, test);
}

pub fn with_low(low: Low, live_restore: bool, test: impl Fn(&Setup, &mut Docker)) {
    if let Some(setup) = Setup::try_of(low)
        && let Some(mut docker) = Docker::start(&setup, live_restore)
    {
        test(&setup, &mut docker);
    }
}

impl Docker {
    pub fn start(setup: &Setup, live_restore: bool) -> Option<Docker> {
        if built("docker", "dockerd").is_none() || built("containerd", "containerd").is_none() {
            super::skip("docker is not there; run scripts/setup");
            return None;
        }
        let dir = crate::temporary("runmig-docker-", &std::env::temp_dir());
        let mut docker = Docker {
            dir,
            runmig: Named::new(setup),
            live_restore,
            containerd: None,
            dockerd: None,
        };
        let text = docker.runmig.shipped("docker-config/daemon.json");
        fs::write(docker.path("daemon.json"), text).unwrap();
        docker.configure_containerd();
        docker.start_containerd();
        docker.start_dockerd();
        docker.import();
        Some(docker)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Has its runmig ask for each container.
    pub fn ask_for_all(&self, setup: &Setup, request: &str) {
        self.runmig.ask(setup, request);
    }

    fn configure_containerd(&self) {
        let at = |name: &str| self.path(name).display().to_string();
        let text = format!(
            "version = 3\nroot = \"{}\"\nstate = \"{}\"\noom_score = 0\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.runtime\", \
             \"io.containerd.cri.v1.images\", \"io.containerd.internal.v1.opt\"]\n\
             [grpc]\naddress = \"{}\"\n",
            at("c-root"),
            at("c-state"),
            at("containerd.sock"),
        );
        fs::write(self.path("containerd.toml"), text).unwrap();
    }

    /// A program of theirs, with what they call on its PATH.
    fn command(&self, engine: &str, program: &str) -> Command {
        let program = built(engine, program).unwrap();
        // The distribution's runc is too old for it.
        let beside = [built("containerd", "containerd"), Low::NewRunc.find()].map(|program| {
            let mut folder = program.unwrap_or_default();
            folder.pop();
            folder.display().to_string()
        });
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", beside.join(":"));
        let mut command = Command::new(program);
        command.env("PATH", path).env_remove("RUNMIG_CONFIG");
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    pub fn start_containerd(&mut self) {
        let mut containerd = self.command("containerd", "containerd");
        containerd.arg("-c").arg(self.path("containerd.toml"));
        self.containerd = Some(going(&mut containerd));
        let socket = self.path("containerd.sock");
        until("containerd answers", || {
            let mut ctr = self.command("containerd", "ctr");
            let version = ctr.arg("--address").arg(&socket).arg("version");
            said(version).status.success()
        });
    }

    pub fn start_dockerd(&mut self) {
        let at = |option: &str, name: &str| format!("--{option}={}", self.path(name).display());
        let mut dockerd = self.command("docker", "dockerd");
        dockerd
            .arg(at("config-file", "daemon.json"))
            .arg(at("data-root", "root"))
            .arg(at("exec-root", "exec"))
            .arg(at("pidfile", "docker.pid"))
            .arg(at("cdi-spec-dir", "cdi"))
            .arg(at("containerd", "containerd.sock"))
            .arg(format!("--host=unix://{}", self.socket().display()))
            .arg(format!("--cgroup-parent=/{}", self.cgroup()))
            .arg(format!("--live-restore={}", self.live_restore))
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false"])
            .args(["--userland-proxy=false", "--log-level=warn"])
            .arg("--exec-opt=native.cgroupdriver=cgroupfs");
        self.dockerd = Some(going(&mut dockerd));
        until("dockerd answers", || {
            call(&self.socket(), "GET", "/_ping", b"").is_ok_and(|a| a.status == 200)
        });
    }

    pub fn kill_dockerd(&mut self) {
        self.dockerd.take().unwrap().kill();
        // A pid file would keep the next from starting, had its number been given again.
        let _ = fs::remove_file(self.path("docker.pid"));
    }

    /// As `systemctl stop` does.
    pub fn stop_dockerd(&mut self) {
        let dockerd = self.dockerd.take().unwrap();
        dockerd.signal(Signal::SIGTERM);
        dockerd.end();
    }

    pub fn kill_containerd(&mut self) {
        self.containerd.take().unwrap().kill();
    }

    fn socket(&self) -> PathBuf {
        self.path("docker.sock")
    }

    /// Above those of its containers.
    fn cgroup(&self) -> String {
        let name = self.dir.path().file_name().unwrap();
        name.to_str().unwrap().to_owned()
    }

    fn import(&self) {
        rootfs(&self.path("rootfs"));
        super::images::tar(&self.path("rootfs"), &self.path("image.tar"));
        let image = fs::read(self.path("image.tar")).unwrap();
        let (name, tag) = IMAGE.split_once(':').unwrap();
        let path = format!("/images/create?fromSrc=-&repo={name}&tag={tag}");
        call(&self.socket(), "POST", &path, &image).unwrap().ok();
    }

    /// Loads an archive of an image.
    #[track_caller]
    pub fn load(&self, archive: &[u8]) {
        let said = call(&self.socket(), "POST", "/images/load", archive);
        said.unwrap().ok();
    }

    /// An answer from the API.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        call(&self.socket(), method, path, &body).expect("an answer")
    }

    #[track_caller]
    pub fn post(&self, id: &str, verb: &str) -> Answer {
        self.ask("POST", &format!("/containers/{id}/{verb}"), &Value::Null)
    }

    /// As `docker create --runtime runmig --annotation …` has it; `more` for its HostConfig.
    #[track_caller]
    pub fn create_with(&self, annotations: &[(&str, &str)], script: &str, more: Value) -> String {
        let annotations: Value = annotations.iter().copied().collect();
        let mut host =
            json!({"Runtime": "runmig", "NetworkMode": "none", "Annotations": annotations});
        let more = more.as_object().cloned().unwrap_or_default();
        host.as_object_mut().unwrap().extend(more);
        let container =
            json!({"Image": IMAGE, "Cmd": ["/bin/sh", "-c", script], "HostConfig": host});
        let made = self.ask("POST", "/containers/create", &container).ok();
        made.json()["Id"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn create(&self, slice: &str, script: &str) -> String {
        self.create_with(&[("runmig.dev/slice", slice)], script, Value::Null)
    }

    /// One that runs until it is stopped.
    #[track_caller]
    pub fn sleeping(&self, slice: &str) -> String {
        let id = self.create(slice, "exec sleep 1000");
        self.post(&id, "start").ok();
        id
    }

    #[track_caller]
    pub fn remove(&self, id: &str) {
        let path = format!("/containers/{id}?force=true");
        self.ask("DELETE", &path, &Value::Null).ok();
    }

    #[track_caller]
    pub fn state(&self, id: &str) -> Value {
        let said = self.ask("GET", &format!("/containers/{id}/json"), &Value::Null);
        said.ok().json()["State"].clone()
    }

    /// Returns its output, standard error included.
    #[track_caller]
    pub fn logs(&self, id: &str) -> String {
        let path = format!("/containers/{id}/logs?stdout=true&stderr=true");
        unframed(&self.ask("GET", &path, &Value::Null).ok().body)
    }

    #[track_caller]
    pub fn exec(&self, id: &str, script: &str) -> String {
        self.try_exec(id, script).expect("an exec")
    }

    /// None: the engine could not begin; where it failed later, it says so in the output.
    fn try_exec(&self, id: &str, script: &str) -> Option<String> {
        let what = json!({
            "AttachStdout": true, "AttachStderr": true, "Cmd": ["/bin/sh", "-c", script],
        });
        let made = self.ask("POST", &format!("/containers/{id}/exec"), &what);
        let exec = made.ok().json()["Id"].as_str().unwrap().to_owned();
        let path = format!("/exec/{exec}/start");
        let done = self.ask("POST", &path, &json!({"Detach": false}));
        (done.status < 300).then(|| unframed(&done.body))
    }

    /// As `docker 29.1.0`. dockerd calls itself "dev", so the version is the name of its folder.
    pub fn name(&self) -> String {
        let bin = built("docker", "dockerd").unwrap();
        let current = fs::read_link(bin.ancestors().nth(2).unwrap()).unwrap();
        format!("docker {}", current.display())
    }
}

/// Output comes in frames: which stream, three zeros, its length in four bytes, and so much of it.
fn unframed(mut body: &[u8]) -> String {
    let mut text = Vec::new();
    while let Some((head, rest)) = body.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (frame, rest) = rest.split_at(length.min(rest.len()));
        text.extend(frame);
        body = rest;
    }
    String::from_utf8_lossy(&text).into_owned()
}

impl Drop for Docker {
    fn drop(&mut self) {
        if self.dockerd.is_some() {
            let list = self.ask("GET", "/containers/json?all=true", &Value::Null);
            for container in list.json().as_array().into_iter().flatten() {
                let id = container["Id"].as_str().unwrap();
                let path = format!("/containers/{id}?force=true");
                self.ask("DELETE", &path, &Value::Null);
            }
            self.stop_dockerd();
        }
        // A test may have failed with its engine dead.
        for init in in_cgroup(&format!("/{}/", self.cgroup())) {
            let shim = parent(init).filter(|pid| *pid > 1);
            kill(init);
            shim.into_iter().for_each(kill);
        }
        self.containerd = None;
        unmount_below(self.dir.path().to_str().unwrap());
        remove_cgroup(&self.cgroup());
    }
}
