//! A control plane on loopback: real programs, as processes that end with it, in a folder of their own. Tests and the
//! benchmark of clusters start it.

// Each user needs other parts.
#![allow(dead_code)]

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::net::TcpListener;
use testkit::prelude::*;

const LIMIT: Duration = Duration::from_secs(120);
/// The logs whose ends a failed test shows, as far as they are there.
const LOGS: [&str; 3] = ["driver.log", "successor.log", "kube-apiserver.log"];

pub struct ControlPlane {
    dir: TempDir,
    bin: PathBuf,
    port: u16,
    /// The programs, each with its name.
    pub processes: Vec<(&'static str, Child)>,
    /// Their arguments.
    arguments: BTreeMap<&'static str, Vec<String>>,
}

impl ControlPlane {
    /// Makes the folder. `bin` has the programs.
    pub fn new(bin: &Path) -> ControlPlane {
        ControlPlane {
            dir: tempfile::tempdir().unwrap(),
            bin: bin.to_owned(),
            port: 0,
            processes: Vec::new(),
            arguments: BTreeMap::new(),
        }
    }

    /// Starts etcd and the API server, with these tokens and flags besides.
    pub fn start(&mut self, tokens: &str, flags: &[&str]) {
        let [clients, peers, port] = free_ports();
        self.port = port;
        let clients = format!("http://127.0.0.1:{clients}");
        let peers = format!("http://127.0.0.1:{peers}");
        let etcd = format!(
            "--data-dir=etcd --unsafe-no-fsync --listen-client-urls={clients} --advertise-client-urls={clients} \
             --listen-peer-urls={peers} --initial-advertise-peer-urls={peers} --initial-cluster=default={peers}"
        );
        self.run("etcd", &etcd.split(' ').collect::<Vec<_>>());
        let mut openssl = Command::new("openssl");
        let key = openssl.args(["genrsa", "-out"]).arg(self.at("account.key"));
        assert!(key.arg("2048").output().unwrap().status.success());
        fs::write(self.at("tokens"), tokens).unwrap();
        let ours = format!(
            "--bind-address=127.0.0.1 --advertise-address=127.0.0.1 --cert-dir=certificates --token-auth-file=tokens \
             --endpoint-reconciler-type=none --service-account-issuer=https://kubernetes.default.svc \
             --service-account-key-file=account.key --service-account-signing-key-file=account.key \
             --etcd-servers={clients} --secure-port={port}"
        );
        let ours: Vec<&str> = ours.split(' ').collect();
        self.run("kube-apiserver", &[&ours[..], flags].concat());
    }

    /// Starts one more program in the folder, with a log there.
    pub fn run(&mut self, program: &'static str, arguments: &[&str]) {
        let log = File::create(self.at(&format!("{program}.log"))).unwrap();
        let mut command = Command::new(self.bin.join(program));
        command.args(arguments).current_dir(self.dir.path());
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let started = quiet.stderr(log).spawn();
        let started =
            started.unwrap_or_else(|e| panic!("{program}: {e}; scripts/engines kubernetes"));
        self.processes.push((program, started));
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        self.arguments.insert(program, arguments.collect());
    }

    /// Kills a program.
    pub fn stop(&mut self, program: &str) {
        let at = self.processes.iter().position(|(name, _)| *name == program);
        let (_, mut process) = self.processes.remove(at.unwrap());
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Starts a program that was stopped, as it was started before.
    pub fn start_again(&mut self, program: &'static str) {
        let arguments = self.arguments[program].clone();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.run(program, &arguments);
    }

    /// A file of the folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program of the control plane.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.env("HOME", self.dir.path());
        command
    }

    /// Writes a kubeconfig of this name for the API server, with a token.
    pub fn kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        self.kubeconfig_for(self.port, name, token)
    }

    /// The same for another server.
    pub fn kubeconfig_for(&self, port: u16, name: &str, token: &str) -> PathBuf {
        let server = format!("https://127.0.0.1:{port}");
        let cluster = json!({"server": server, "insecure-skip-tls-verify": true});
        self.write_kubeconfig(name, cluster, json!({"token": token}))
    }

    /// The same for a proxy that needs no token.
    pub fn kubeconfig_by_proxy(&self, name: &str, port: u16) -> PathBuf {
        let cluster = json!({"server": format!("http://127.0.0.1:{port}")});
        self.write_kubeconfig(name, cluster, json!({}))
    }

    fn write_kubeconfig(&self, name: &str, cluster: Value, user: Value) -> PathBuf {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let file = self.at(name);
        fs::write(&file, kubeconfig.to_string()).unwrap();
        file
    }

    /// Starts the scheduler. Returns its port.
    pub fn start_scheduler(&mut self) -> u16 {
        let [port] = free_ports();
        let flags = format!(
            "--kubeconfig=kubeconfig --leader-elect=false --bind-address=127.0.0.1 --secure-port={port} \
             --cert-dir=scheduler --authorization-always-allow-paths=/metrics,/readyz --kube-api-qps=500 \
             --kube-api-burst=500"
        );
        self.run("kube-scheduler", &flags.split(' ').collect::<Vec<_>>());
        port
    }

    /// Makes a simulated machine and a configuration for the driver in the folder.
    pub fn make_node(&self) {
        let machine = self.at("machine");
        let path = machine.to_str().unwrap();
        sim(&["new", path, "--gpu", "A100-80GB", "--mig", "on"]);
        let config = format!(
            "state_dir = {:?}\ndata_dir = {:?}\ndriver_files = \"none\"\n[driver]\nlibrary = {:?}\nroot = {machine:?}\n[kubernetes]\nkubelet_dir = {:?}\n",
            self.at("state"),
            self.at("data"),
            machine.join("lib/libnvidia-ml.so.1"),
            self.at("kubelet"),
        );
        fs::write(self.at("config.toml"), config).unwrap();
    }

    /// The driver's options behind those of a command, which starts it.
    pub fn as_driver(
        &self,
        mut command: Command,
        node: &str,
        kubeconfig: &Path,
        log: &str,
    ) -> Command {
        let log = File::options().append(true).create(true).open(self.at(log));
        command
            .args(["--node", node, "--claim-hook", "/bin/true", "--kubeconfig"])
            .arg(kubeconfig)
            .arg("--cdi-dir")
            .arg(self.at("cdi"))
            .env("RUNMIG_CONFIG", self.at("config.toml"))
            .stdin(Stdio::null())
            .stderr(log.unwrap());
        command
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in LOGS {
                let text = fs::read_to_string(self.at(log)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().rev().take(15).collect();
                eprintln!("{log}:");
                lines.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
        for (_, process) in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The folder of the programs. None if they are not built, or for users other than root.
pub fn programs() -> Option<PathBuf> {
    if !nix::unistd::geteuid().is_root() {
        skip("the driver makes slices, as root");
        return None;
    }
    let server = built("kubernetes", "kube-apiserver");
    if server.is_none() {
        skip("kubernetes is not built: scripts/engines kubernetes");
    }
    Some(server?.parent()?.to_owned())
}

pub fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// A client with the rights of a kubeconfig's account.
pub async fn client(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// Waits for all that the API server does at its start. Before, it ends if it finds no etcd.
pub async fn answers(client: &Client) {
    until("the API server is ready", async || {
        let ask = tonic::codegen::http::Request::get("/readyz").body(Vec::new());
        client.request_text(ask.unwrap()).await.is_ok()
    })
    .await;
}

/// Calls a program of this build, which has to succeed. Returns what it says.
pub fn call(name: &str, arguments: &[&str]) -> String {
    said(Command::new(program(name)).args(arguments))
        .ok()
        .stdout
}

pub fn sim(arguments: &[&str]) -> String {
    call("nvml-sim", arguments)
}

/// Asks again until it is so.
pub async fn until(what: &str, mut it_is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !it_is_so().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
