//! Engines that Kubernetes calls, with crictl in the kubelet's place: everything that one of them
//! writes is in a folder of the test's own.
//!
//! ```text
//! DIR/cri/socket      where it listens
//! DIR/cri/log         what it said
//! DIR/cri/logs/       of containers
//! DIR/cri/…           the engine's own, containerd.rs and crio.rs
//! ```

use super::cuda::Mount;
use super::images::{self, IMAGE};
use super::leftovers::{remove_cgroup, unmount_below};
use super::named::Named;
use super::{cgroup2, containerd, crio};
use crate::prelude::*;
use std::cell::RefCell;
use std::os::unix::net::UnixStream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The distribution's: 1.6 on Debian 12.
    Containerd1,
    Containerd2,
    Crio,
}

impl Engine {
    pub fn find(self) -> Option<PathBuf> {
        match self {
            Engine::Containerd1 => on_path("containerd"),
            Engine::Containerd2 => built("containerd", "containerd"),
            Engine::Crio => built("cri-o", "crio"),
        }
    }

    pub fn is_containerd(self) -> bool {
        self != Engine::Crio
    }
}

/// An engine that runs.
pub struct Cri<'a> {
    pub engine: Engine,
    pub setup: &'a Setup,
    /// The program that the handler runmig calls.
    pub runtime: Named,
    program: PathBuf,
    crictl: PathBuf,
    dir: PathBuf,
    going: Option<Going>,
    /// All pods are below this cgroup.
    cgroup: String,
    pods: RefCell<Vec<String>>,
    /// Folders of the host in every container.
    pub mounts: Vec<Mount>,
}

pub struct Pod {
    pub id: String,
    config: PathBuf,
    /// The namespaces of its next containers.
    namespaces: Value,
}

impl<'a> Cri<'a> {
    /// With the handler runmig as it is shipped, and the image. None where something is not there.
    pub fn start(engine: Engine, setup: &'a Setup) -> Option<Cri<'a>> {
        let (Some(program), Some(crictl)) = (engine.find(), built("cri-tools", "crictl")) else {
            let missing = format!("{engine:?} or crictl is not there");
            skip_until_full(&format!("{missing}; run scripts/setup full"));
            return None;
        };
        let dir = setup.path("cri");
        for folder in ["logs", "cni"] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        if engine == Engine::Crio {
            crio::without_oom_scores(setup);
        } else if cgroup2::lacks_controllers() {
            containerd::without_processor_shares(setup);
        }
        let mut cri = Cri {
            engine,
            setup,
            runtime: Named::new(setup),
            program,
            crictl,
            dir,
            going: None,
            cgroup: format!("/runmig-cri-{}", unique()),
            pods: RefCell::default(),
            mounts: Vec::new(),
        };
        let endpoint = format!("unix://{}", cri.socket().display());
        let of_crictl = format!("runtime-endpoint: {endpoint}\nimage-endpoint: {endpoint}\n");
        cri.write("crictl.yaml", &format!("{of_crictl}timeout: 50\n"));
        let image = images::archive(&cri.path("image"));
        if engine.is_containerd() {
            containerd::configure(&cri);
            cri.up();
            cri.import(&image);
        } else {
            crio::configure(&cri);
            cri.import(&image);
            cri.up();
        }
        Some(cri)
    }

    /// Takes the image of an archive, in place of one of the same name.
    pub fn import(&self, image: &Path) {
        match self.engine {
            Engine::Containerd1 | Engine::Containerd2 => containerd::import(self, image),
            Engine::Crio => crio::import(self, image),
        }
    }

    /// As `containerd 1.6.20`.
    pub fn name(&self) -> String {
        let said = said(Command::new(&self.program).arg("--version")).ok();
        let mut words = said
            .stdout
            .split_whitespace()
            .map(|word| word.trim_start_matches('v'));
        let version = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let version = version.expect(&said.stdout).split(['~', '+', '-']).next();
        let name = match self.engine.is_containerd() {
            true => "containerd",
            false => "CRI-O",
        };
        format!("{name} {}", version.unwrap())
    }

    /// Something in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A program of the same engine.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.program.with_file_name(name)
    }

    /// Starts it, until it answers.
    #[track_caller]
    pub fn up(&mut self) {
        let mut engine = match self.engine {
            Engine::Containerd1 | Engine::Containerd2 => containerd::command(self),
            Engine::Crio => crio::command(self),
        };
        // An engine that looks for its own programs finds those.
        let beside = self.program.parent().unwrap().display().to_string();
        engine.env("PATH", format!("{beside}:/usr/sbin:/usr/bin:/sbin:/bin"));
        self.going = Some(going(engine.stdin(Stdio::null())));
        until("the engine answers", || {
            UnixStream::connect(self.socket()).is_ok() && self.crictl(&["version"]).status.success()
        });
    }

    pub fn engine_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.dir).env_remove("RUNMIG_CONFIG");
        command
    }

    pub fn pid(&self) -> i32 {
        self.going.as_ref().unwrap().pid()
    }

    /// As a service manager stops it.
    #[track_caller]
    pub fn stop(&mut self) {
        let going = self.going.take().unwrap();
        going.signal(Signal::SIGTERM);
        going.end();
    }

    pub fn kill(&mut self) {
        self.going.take().unwrap().kill();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut crictl = Command::new(&self.crictl);
        crictl.arg("--config").arg(self.path("crictl.yaml"));
        crictl.args(arguments).current_dir(&self.dir);
        crictl
    }

    #[track_caller]
    pub fn crictl(&self, arguments: &[&str]) -> Said {
        said(&mut self.command(arguments))
    }

    /// A pod with its sandbox, on the host's network.
    #[track_caller]
    pub fn pod(&self, annotations: &[(&str, &str)]) -> Pod {
        self.pod_with(annotations, 1)
    }

    /// One whose containers see each other's processes; on CRI-O only such a pod has a sandbox
    /// that is a container.
    #[track_caller]
    pub fn pod_with_common_pids(&self, annotations: &[(&str, &str)]) -> Pod {
        self.pod_with(annotations, 0)
    }

    #[track_caller]
    fn pod_with(&self, annotations: &[(&str, &str)], pids: u8) -> Pod {
        let name = format!("pod-{}", unique());
        let config = self.path(&format!("{name}.json"));
        // 0 for one of the pod, 1 for one of each container, which is the kubelet's own.
        let namespaces = json!({"namespace_options": {"network": 2, "pid": pids}});
        let text = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "attempt": 0},
            "log_directory": self.path("logs").join(&name),
            "annotations": map(annotations),
            "labels": {
                "io.kubernetes.pod.name": name,
                "io.kubernetes.pod.namespace": "default",
                "io.kubernetes.pod.uid": name,
            },
            "linux": {"cgroup_parent": self.cgroup, "security_context": namespaces},
        });
        fs::write(&config, text.to_string()).unwrap();
        let config_name = config.to_str().unwrap();
        let said = self.crictl(&["runp", "--runtime=runmig", config_name]).ok();
        let id = said.stdout.trim().to_owned();
        self.pods.borrow_mut().push(id.clone());
        Pod {
            id,
            config,
            namespaces,
        }
    }

    /// Creates a container of a pod through crictl, as the kubelet has it made: `name` or, made
    /// again, `name#1`.
    pub fn create(
        &self,
        pod: &Pod,
        name: &str,
        script: &str,
        annotations: &[(&str, &str)],
    ) -> [String; 4] {
        let (base, attempt) = name.split_once('#').unwrap_or((name, "0"));
        let config = self.path(&format!("container-{}.json", unique()));
        let text = json!({
            "metadata": {"name": base, "attempt": attempt.parse::<u32>().unwrap()},
            "image": {"image": IMAGE},
            "command": ["/bin/sh", "-c", script],
            "log_path": format!("{base}-{attempt}.log"),
            "annotations": map(annotations),
            "mounts": self.mounts.iter().map(mounted).collect::<Value>(),
            // CRI-O takes the names from these.
            "labels": {
                "io.kubernetes.container.name": base,
                "io.kubernetes.pod.name": pod.name(),
                "io.kubernetes.pod.namespace": "default",
                "io.kubernetes.pod.uid": pod.name(),
            },
            "linux": {"security_context": pod.namespaces},
        });
        fs::write(&config, text.to_string()).unwrap();
        let [own, of_pod] = [&config, &pod.config].map(|path| path.display().to_string());
        ["create".into(), pod.id.clone(), own, of_pod]
    }

    /// Creates and starts it: its id, or what crictl said. containerd calls the runtime in the second
    /// of these calls, CRI-O in the first.
    pub fn try_run(
        &self,
        pod: &Pod,
        name: &str,
        script: &str,
        annotations: &[(&str, &str)],
    ) -> Result<String, String> {
        let create = self.create(pod, name, script, annotations);
        let created = self.crictl(&create.each_ref().map(String::as_str));
        if !created.status.success() {
            return Err(created.stderr);
        }
        let id = created.stdout.trim().to_owned();
        let started = self.crictl(&["start", &id]);
        if !started.status.success() {
            return Err(started.stderr);
        }
        Ok(id)
    }

    #[track_caller]
    pub fn run(&self, pod: &Pod, name: &str, script: &str) -> String {
        self.try_run(pod, name, script, &[])
            .unwrap_or_else(|said| panic!("{said}\n{}", self.log()))
    }

    /// Returns the output of a container.
    pub fn logs(&self, id: &str) -> String {
        self.crictl(&["logs", id]).stdout
    }

    /// `CONTAINER_RUNNING`, `CONTAINER_EXITED`
    #[track_caller]
    pub fn state(&self, id: &str) -> String {
        let inspected = self.inspect(id);
        inspected["status"]["state"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn inspect(&self, id: &str) -> Value {
        self.crictl(&["inspect", id]).ok().json()
    }

    /// The processes of a container, as its cgroup has them.
    pub fn inside(&self, id: &str) -> Vec<i32> {
        let scope = match self.engine.is_containerd() {
            true => "",
            false => "crio-",
        };
        in_cgroup(&format!("{}/{scope}{id}", self.cgroup))
    }

    /// Pods, containers and what they left, all of it.
    #[track_caller]
    pub fn remove_all(&self) {
        for id in self.crictl(&["ps", "--quiet"]).ok().stdout.lines() {
            self.crictl(&["stop", "--timeout=0", id]).ok();
        }
        self.crictl(&["rmp", "--all", "--force"]).ok();
    }

    /// Returns the engine's log, for a test that fails.
    pub fn log(&self) -> String {
        let going = self.going.as_ref();
        going.map(Going::said_so_far).unwrap_or_default()
    }
}

impl Pod {
    pub fn name(&self) -> &str {
        self.config.file_stem().unwrap().to_str().unwrap()
    }

    /// Lets its next containers join the processes of one, as `kubectl debug --target` has it.
    pub fn target(&mut self, id: &str) {
        let options = json!({"network": 2, "pid": 3, "target_id": id});
        self.namespaces = json!({ "namespace_options": options });
    }
}

fn map(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(key, value)| (*key, *value)).collect()
}

fn mounted(mount: &Mount) -> Value {
    let (host, inside) = (&mount.host, &mount.inside);
    json!({"host_path": host, "container_path": inside, "readonly": mount.read_only})
}

impl Drop for Cri<'_> {
    /// Removes everything that a failed test has left.
    fn drop(&mut self) {
        in_cgroup(&self.cgroup).into_iter().for_each(kill);
        if self.going.is_some() {
            let _ = self.command(&["rmp", "--all", "--force"]).output();
        }
        self.going = None;
        let dir = self.dir.to_str().unwrap();
        with_argument(dir).into_iter().for_each(kill);
        for pod in self.pods.borrow().iter() {
            containerd::forget_shim(self, "k8s.io", pod);
        }
        unmount_below(dir);
        remove_cgroup(&self.cgroup[1..]);
    }
}
