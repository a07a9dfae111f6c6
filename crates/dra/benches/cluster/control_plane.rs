//! etcd, API server, controller manager and scheduler on loopback, in a folder of their own, until they are dropped.

use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct ControlPlane {
    dir: TempDir,
    programs: PathBuf,
    processes: Vec<(&'static str, Child)>,
    /// The API server.
    pub client: Client,
    /// The scheduler, for its metrics.
    pub scheduler: Client,
}

impl ControlPlane {
    pub async fn start(programs: &Path) -> ControlPlane {
        let dir = tempfile::tempdir().expect("a folder");
        let [clients, peers, port, scheduler] = free_ports();
        let clients = format!("http://127.0.0.1:{clients}");
        let peers = format!("http://127.0.0.1:{peers}");
        let at = |name: &str| dir.path().join(name);
        let key = Command::new("openssl")
            .args(["genrsa", "-out"])
            .arg(at("account.key"))
            .arg("2048")
            .output();
        assert!(key.expect("openssl").status.success());
        fs::write(at("tokens"), "secret,admin,admin,system:masters").expect("a file");
        for (name, port) in [("kubeconfig", port), ("kubeconfig-scheduler", scheduler)] {
            fs::write(at(name), kubeconfig(port)).expect("a file");
        }
        let client = client(&at("kubeconfig")).await;
        let mut plane = ControlPlane {
            scheduler: self::client(&at("kubeconfig-scheduler")).await,
            programs: programs.to_owned(),
            processes: Vec::new(),
            client,
            dir,
        };
        plane.run(
            "etcd",
            &[
                "--data-dir=etcd",
                "--unsafe-no-fsync",
                &format!("--listen-client-urls={clients}"),
                &format!("--advertise-client-urls={clients}"),
                &format!("--listen-peer-urls={peers}"),
                &format!("--initial-advertise-peer-urls={peers}"),
                &format!("--initial-cluster=default={peers}"),
            ],
        );
        plane.run(
            "kube-apiserver",
            &[
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--cert-dir=certificates",
                "--token-auth-file=tokens",
                "--authorization-mode=AlwaysAllow",
                // No kubelet removes the taint, and no controller makes accounts.
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                "--endpoint-reconciler-type=none",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-account-key-file=account.key",
                "--service-account-signing-key-file=account.key",
                &format!("--etcd-servers={clients}"),
                &format!("--secure-port={port}"),
            ],
        );
        let namespaces: Api<Namespace> = Api::all(plane.client.clone());
        until("the API server answers", async || {
            namespaces.get("default").await.is_ok()
        })
        .await;
        plane.run(
            "kube-controller-manager",
            &[
                "--kubeconfig=kubeconfig",
                "--leader-elect=false",
                "--secure-port=0",
                "--controllers=resourceclaim-controller,garbage-collector-controller",
                "--kube-api-qps=500",
                "--kube-api-burst=500",
            ],
        );
        plane.run(
            "kube-scheduler",
            &[
                "--kubeconfig=kubeconfig",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                &format!("--secure-port={scheduler}"),
                "--cert-dir=scheduler",
                "--authorization-always-allow-paths=/metrics,/readyz",
                "--kube-api-qps=500",
                "--kube-api-burst=500",
            ],
        );
        until("the scheduler answers", async || {
            plane.metrics().await.is_some()
        })
        .await;
        plane
    }

    fn run(&mut self, program: &'static str, arguments: &[&str]) {
        let log = File::create(self.dir.path().join(program).with_extension("log")).expect("a log");
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).current_dir(self.dir.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let started = command
            .spawn()
            .unwrap_or_else(|e| panic!("{program}: {e}; scripts/engines kubernetes"));
        self.processes.push((program, started));
    }

    /// Returns the metrics of the scheduler.
    pub async fn metrics(&self) -> Option<String> {
        let request = tonic::codegen::http::Request::get("/metrics")
            .body(Vec::new())
            .ok()?;
        self.scheduler.request_text(request).await.ok()
    }

    /// Returns the resident memory of each part, in MB.
    pub fn resident(&self) -> Vec<(&'static str, u64)> {
        let parts =
            { self.processes.iter() }.map(|(program, process)| (*program, resident(process.id())));
        parts.collect()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for (_, process) in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1000
}

fn kubeconfig(port: u16) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true,
        }}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    config.to_string()
}

async fn client(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).expect("it was written");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &options)
        .await
        .expect("it was written");
    Client::try_from(config).expect("a client")
}

fn free_ports() -> [u16; 4] {
    let listeners = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("bound").port())
}

/// Asks again until it is so.
pub async fn until(what: &str, mut it_is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !it_is_so().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
