//! dockerd in the node with a containerd of its own, asked by its API.

use super::RACER;
use super::local::Engine;
use crate::node::Node;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::bundle::rootfs;
use testkit::http::{Answer, call};
use testkit::leftovers::remove_cgroup;
use testkit::process::{kill, until};
use testkit::runtimes::{built, script};
use testkit::{Going, going, said, skip};

const IMAGE: &str = "runmig:race";
/// Above those of its containers.
const CGROUP: &str = "runmig-race-docker";

pub struct Docker<'a> {
    node: &'a Node,
    dir: PathBuf,
    going: Vec<Going>,
}

impl<'a> Docker<'a> {
    /// None where docker is not there.
    pub fn start(node: &'a Node) -> Option<Docker<'a>> {
        let (dockerd, containerd) = (
            built("docker", "dockerd"),
            built("containerd", "containerd"),
        );
        let runc = built("runc", "runc");
        let (Some(dockerd), Some(containerd), Some(runc)) = (dockerd, containerd, runc) else {
            skip("docker is not there; run scripts/setup");
            return None;
        };
        let mut docker = Docker {
            node,
            dir: node.dir().join("docker"),
            going: Vec::new(),
        };
        fs::create_dir_all(&docker.dir).unwrap();
        let runtimes = json!({"runtimes": {"runmig": {"path": docker.runmig(&runc)}}});
        fs::write(docker.dir.join("daemon.json"), runtimes.to_string()).unwrap();
        let at = |name: &str| docker.dir.join(name).display().to_string();
        let text = format!(
            "version = 3\nroot = \"{}\"\nstate = \"{}\"\noom_score = 0\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.runtime\", \
             \"io.containerd.cri.v1.images\", \"io.containerd.internal.v1.opt\"]\n\
             [grpc]\naddress = \"{}\"\n",
            at("c-root"),
            at("c-state"),
            at("containerd.sock"),
        );
        fs::write(docker.dir.join("containerd.toml"), text).unwrap();
        let arguments = [
            format!("--config-file={}", at("daemon.json")),
            format!("--data-root={}", at("root")),
            format!("--exec-root={}", at("exec")),
            format!("--pidfile={}", at("docker.pid")),
            format!("--containerd={}", at("containerd.sock")),
            format!("--host=unix://{}", at("docker.sock")),
            format!("--cgroup-parent=/{CGROUP}"),
        ];
        let config = at("containerd.toml");
        let path = format!(
            "PATH={}:/usr/sbin:/usr/bin:/sbin:/bin",
            containerd.parent().unwrap().display()
        );
        let start = |program: &PathBuf, arguments: &[String]| {
            let mut command = node.inside("env");
            command.arg(&path).arg(program).args(arguments);
            going(command.stdin(Stdio::null()))
        };
        docker.going = vec![start(&containerd, &["--config".to_owned(), config])];
        let socket = docker.dir.join("containerd.sock");
        until("docker's containerd listens", || socket.exists());
        let more = [
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--userland-proxy=false",
            "--log-level=warn",
            "--exec-opt=native.cgroupdriver=cgroupfs",
        ];
        let all: Vec<String> = { arguments.into_iter() }
            .chain(more.map(str::to_owned))
            .collect();
        docker.going.push(start(&dockerd, &all));
        let socket = docker.socket();
        until("dockerd answers", || {
            call(&socket, "GET", "/_ping", b"").is_ok_and(|a| a.status == 200)
        });
        docker.import();
        Some(docker)
    }

    /// Returns the node's runmig on its ledger, over a low-level runtime that is new enough for docker.
    fn runmig(&self, runc: &Path) -> PathBuf {
        let text = fs::read_to_string(self.node.root().join("etc/runmig/config.toml")).unwrap();
        let (_, rest) = text.split_once('\n').unwrap();
        let runc = runc.canonicalize().unwrap();
        let config = self.dir.join("config.toml");
        fs::write(&config, format!("runtime = \"{}\"\n{rest}", runc.display())).unwrap();
        let runmig = self.dir.join("runmig");
        let config = config.display();
        let run = format!("RUNMIG_CONFIG={config} exec /usr/local/bin/runmig \"$@\"");
        script(&runmig, &run);
        runmig
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("docker.sock")
    }

    fn import(&self) {
        let root = self.dir.join("rootfs");
        rootfs(&root);
        let image = self.dir.join("image.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(root).arg("-cf").arg(&image).arg(".");
        said(&mut tar).ok();
        let (name, tag) = IMAGE.split_once(':').unwrap();
        let path = format!("/images/create?fromSrc=-&repo={name}&tag={tag}");
        let image = fs::read(image).unwrap();
        call(&self.socket(), "POST", &path, &image).unwrap().ok();
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        call(&self.socket(), method, path, &body).expect("an answer")
    }
}

impl Engine for Docker<'_> {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn run(&self, container: &str, profile: &str) -> Result<(), String> {
        let it = json!({
            "Image": IMAGE,
            "Cmd": ["sleep", "10000"],
            "Env": [format!("{RACER}={container}")],
            "StopTimeout": 0,
            "HostConfig": {
                "Runtime": "runmig",
                "NetworkMode": "none",
                "Annotations": {"runmig.dev/slice": profile},
            },
        });
        let path = format!("/containers/create?name={container}");
        self.ask("POST", &path, &it).ok();
        let started = self.ask(
            "POST",
            &format!("/containers/{container}/start"),
            &Value::Null,
        );
        match started.status < 300 {
            true => Ok(()),
            false => Err(started.json()["message"].as_str().unwrap().to_owned()),
        }
    }

    fn remove(&self, container: &str) {
        let path = format!("/containers/{container}?force=true");
        self.ask("DELETE", &path, &Value::Null).ok();
    }
}

impl Drop for Docker<'_> {
    fn drop(&mut self) {
        if let Ok(list) = call(&self.socket(), "GET", "/containers/json?all=true", b"") {
            for container in list.json().as_array().into_iter().flatten() {
                let path = container["Id"].as_str().unwrap_or_default();
                let path = format!("/containers/{path}?force=true");
                let _ = call(&self.socket(), "DELETE", &path, b"");
            }
        }
        // Those who started them end with them.
        for pid in self.node.processes(&self.dir.display().to_string()) {
            kill(pid);
        }
        remove_cgroup(CGROUP);
    }
}
