//! A real API server with its etcd, a simulated machine, and the driver beside them. The test takes the kubelet's place.

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use runmig_dra::kubelet::messages::Claim;
use runmig_dra::kubelet::services::d_r_a_plugin_client::DRAPluginClient;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

const LIMIT: Duration = Duration::from_secs(120);

pub struct Cluster {
    dir: TempDir,
    processes: Vec<Child>,
    pub driver: Option<Child>,
    pub client: Client,
}

impl Cluster {
    /// None if a part of it is not built, or for others than root.
    #[allow(dead_code)]
    pub async fn up() -> Option<Cluster> {
        Cluster::up_with(&["--authorization-mode=AlwaysAllow"]).await
    }

    /// The same with these flags for the API server. The token `plain` is of an account without rights.
    pub async fn up_with(extra: &[&str]) -> Option<Cluster> {
        let [etcd, apiserver] = ["etcd", "kube-apiserver"].map(built);
        let (Some(etcd), Some(apiserver)) = (etcd, apiserver) else {
            return skip("kubernetes is not built: scripts/engines kubernetes");
        };
        if !nix::unistd::geteuid().is_root() {
            return skip("the driver makes slices, as root");
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        sim(&[
            "new",
            at("machine").to_str().unwrap(),
            "--gpu",
            "A100-80GB",
            "--mig",
            "on",
        ]);
        let machine = at("machine");
        let config = format!(
            "state_dir = {:?}\n[driver]\nlibrary = {:?}\nroot = {machine:?}\n[kubernetes]\nkubelet_dir = {:?}\n",
            at("state"),
            machine.join("lib/libnvidia-ml.so.1"),
            at("kubelet"),
        );
        fs::write(at("config.toml"), config).unwrap();

        let [clients, peers, port] = free_ports();
        let start = |program: &Path, arguments: &[String]| {
            let log = at(program.file_name().unwrap().to_str().unwrap()).with_extension("log");
            let log = File::create(log).unwrap();
            let mut command = Command::new(program);
            command.args(arguments).current_dir(dir.path());
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
            command.spawn().unwrap()
        };
        let clients = format!("http://127.0.0.1:{clients}");
        let peers = format!("http://127.0.0.1:{peers}");
        let etcd = start(
            &etcd,
            &[
                "--data-dir=etcd".to_owned(),
                "--unsafe-no-fsync".to_owned(),
                format!("--listen-client-urls={clients}"),
                format!("--advertise-client-urls={clients}"),
                format!("--listen-peer-urls={peers}"),
                format!("--initial-advertise-peer-urls={peers}"),
                format!("--initial-cluster=default={peers}"),
            ],
        );
        let key = Command::new("openssl")
            .args([
                "genrsa",
                "-out",
                at("account.key").to_str().unwrap(),
                "2048",
            ])
            .output();
        assert!(key.unwrap().status.success());
        fs::write(
            at("tokens"),
            "secret,admin,admin,system:masters\nplain,nobody,nobody\n",
        )
        .unwrap();
        let flags = [
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--cert-dir=certificates",
            "--token-auth-file=tokens",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=account.key",
            "--service-account-signing-key-file=account.key",
        ];
        let mut flags: Vec<String> = flags.map(str::to_owned).to_vec();
        flags.extend(extra.iter().map(|flag| (*flag).to_owned()));
        flags.push(format!("--etcd-servers={clients}"));
        flags.push(format!("--secure-port={port}"));
        let apiserver = start(&apiserver, &flags);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        fs::write(at("kubeconfig"), kubeconfig.to_string()).unwrap();
        let read = Kubeconfig::read_from(at("kubeconfig")).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(read, &options)
            .await
            .unwrap();
        let mut cluster = Cluster {
            dir,
            processes: vec![apiserver, etcd],
            driver: None,
            client: Client::try_from(config).unwrap(),
        };
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> =
            Api::all(cluster.client.clone());
        until("the API server answers", async || {
            namespaces.get("default").await.is_ok()
        })
        .await;
        cluster.start_driver();
        Some(cluster)
    }

    /// Starts the driver, in the place of one that runs.
    pub fn start_driver(&mut self) {
        self.end_driver();
        self.driver = Some(self.spawn_driver("driver.log"));
    }

    pub fn end_driver(&mut self) {
        if let Some(mut driver) = self.driver.take() {
            driver.kill().unwrap();
            driver.wait().unwrap();
        }
    }

    fn spawn_driver(&self, log: &str) -> Child {
        let driver = Command::new(env!("CARGO_BIN_EXE_runmig-dra"));
        self.as_driver(driver, log).spawn().unwrap()
    }

    /// The driver's options behind those of a command, which starts it.
    pub fn as_driver(&self, mut command: Command, log: &str) -> Command {
        let log = File::options().append(true).create(true).open(self.at(log));
        command
            .args(["--node", "node", "--kubeconfig"])
            .arg(self.at("kubeconfig"))
            .arg("--cdi-dir")
            .arg(self.at("cdi"))
            .args(["--claim-hook", "/bin/true"])
            .env("RUNMIG_CONFIG", self.at("config.toml"))
            .stdin(Stdio::null())
            .stderr(log.unwrap());
        command
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The kubelet's connection to the driver.
    pub async fn plugin(&self) -> DRAPluginClient<Channel> {
        self.plugin_at("dra.sock").await
    }

    pub async fn plugin_at(&self, socket: &str) -> DRAPluginClient<Channel> {
        let socket = self.at("kubelet/plugins/gpu.runmig.dev").join(socket);
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
        let end = Instant::now() + LIMIT;
        loop {
            match endpoint.connect().await {
                Ok(channel) => return DRAPluginClient::new(channel),
                Err(e) => assert!(Instant::now() < end, "{e}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Makes a claim with this device, reserved for a pod.
    pub async fn claim(&self, name: &str, device: &str, pool: &str) -> Claim {
        let api: Api<ResourceClaim> = Api::default_namespaced(self.client.clone());
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [
                {"name": "slice", "exactly": {"deviceClassName": "mig-1g.10gb"}},
            ]}},
        });
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        let made = api.create(&PostParams::default(), &claim).await.unwrap();
        let result = json!({
            "driver": "gpu.runmig.dev", "pool": pool, "device": device, "request": "slice",
        });
        let pod = json!({"resource": "pods", "name": format!("pod-of-{name}"), "uid": "p-1"});
        self.set_status(
            name,
            json!({
                "allocation": {"devices": {"results": [result]}},
                "reservedFor": [pod],
            }),
        )
        .await;
        Claim {
            namespace: "default".to_owned(),
            uid: made.metadata.uid.unwrap(),
            name: name.to_owned(),
        }
    }

    pub async fn set_status(&self, claim: &str, status: Value) {
        let api: Api<ResourceClaim> = Api::default_namespaced(self.client.clone());
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(claim, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// The places of the machine's GPU instances.
    pub fn starts(&self) -> Vec<u64> {
        let shown = sim(&["show", self.at("machine").to_str().unwrap(), "--json"]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let instances = shown["gpus"][0]["gpuInstances"].as_array().cloned();
        let instances = instances.unwrap_or_default();
        let mut starts: Vec<u64> = { instances.iter() }
            .map(|instance| instance["placement"]["start"].as_u64().unwrap())
            .collect();
        starts.sort_unstable();
        starts
    }

    pub fn cdi_files(&self) -> Vec<String> {
        let files = fs::read_dir(self.at("cdi")).into_iter().flatten();
        files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

/// A second process of the driver.
pub struct Successor(Child);

impl Successor {
    pub fn start(cluster: &Cluster) -> Successor {
        Successor(cluster.spawn_driver("successor.log"))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in ["driver.log", "successor.log", "kube-apiserver.log"] {
                let text = fs::read_to_string(self.at(log)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().rev().take(15).collect();
                eprintln!("{log}:");
                lines.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
        for process in self.driver.iter_mut().chain(&mut self.processes) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn built(program: &str) -> Option<PathBuf> {
    let cache = match std::env::var_os("RUNMIG_CACHE") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/runmig"),
    };
    let program = cache.join("engines/kubernetes/current/bin").join(program);
    program.exists().then_some(program)
}

/// As tests/support has it: the line passes the harness, and where all is to run it is a failure.
fn skip<T>(why: &str) -> Option<T> {
    use std::io::Write;
    let required = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    assert!(
        !required("CI") && !required("RUNMIG_REQUIRE_ALL"),
        "cannot run here, and all is to run: {why}"
    );
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
    None
}

fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

pub fn sim(arguments: &[&str]) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_runmig-dra"))
        .parent()
        .unwrap();
    let program = programs.join("nvml-sim");
    let output = Command::new(&program).args(arguments).output();
    let output =
        output.unwrap_or_else(|e| panic!("{}: {e}; cargo build --workspace", program.display()));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Asks again until it is so.
pub async fn until(what: &str, mut it_is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !it_is_so().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
