//! A real API server with its etcd that checks rights, as a cluster's does, and writes an audit log of the driver's
//! account.

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
pub const ACCOUNT: &str = "system:serviceaccount:runmig:runmig-dra";

pub struct Servers {
    dir: TempDir,
    bin: PathBuf,
    port: u16,
    processes: Vec<Child>,
}

impl Servers {
    /// None if a part is not built, or for others than root.
    pub fn start() -> Option<Servers> {
        let Some(bin) = built() else {
            return skip("kubernetes is not built: scripts/engines kubernetes");
        };
        if !nix::unistd::geteuid().is_root() {
            return skip("the driver makes slices, as root");
        }
        let [clients, peers, port] = free_ports();
        let mut servers = Servers {
            dir: tempfile::tempdir().unwrap(),
            bin,
            port,
            processes: Vec::new(),
        };
        let clients = format!("http://127.0.0.1:{clients}");
        let peers = format!("http://127.0.0.1:{peers}");
        servers.server(
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
        let mut openssl = Command::new("openssl");
        let key = servers.at("account.key");
        let made = openssl.args(["genrsa", "-out"]).arg(key).arg("2048");
        assert!(made.output().unwrap().status.success());
        servers.write("tokens", "secret,admin,admin,system:masters");
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [ACCOUNT]}, {"level": "None"}],
        });
        servers.write("audit.json", &policy.to_string());
        servers.server(
            "kube-apiserver",
            &[
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--cert-dir=certificates",
                "--token-auth-file=tokens",
                "--allow-privileged=true",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--audit-policy-file=audit.json",
                "--audit-log-path=audit.log",
                "--endpoint-reconciler-type=none",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-account-key-file=account.key",
                "--service-account-signing-key-file=account.key",
                &format!("--etcd-servers={clients}"),
                &format!("--secure-port={port}"),
            ],
        );
        let admin = servers.kubeconfig("admin", "secret");
        servers.kubeconfig_of_kubectl(&admin);
        wait_until("the API server answers", || {
            let answer = servers.try_kubectl(&["get", "--raw=/readyz"]);
            answer.is_ok()
        });
        Some(servers)
    }

    fn server(&mut self, program: &str, arguments: &[&str]) {
        let log = File::create(self.at(&format!("{program}.log"))).unwrap();
        let mut command = Command::new(self.bin.join(program));
        command.args(arguments).current_dir(self.dir.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.processes.push(command.spawn().unwrap());
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    /// Writes a kubeconfig with a token, and returns its path.
    pub fn kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        let file = self.at(&format!("kubeconfig-{name}"));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port), "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        fs::write(&file, kubeconfig.to_string()).unwrap();
        file
    }

    fn kubeconfig_of_kubectl(&self, file: &Path) {
        fs::rename(file, self.at("kubeconfig")).unwrap();
    }

    /// kubectl as the cluster's administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let said = self.try_kubectl(arguments);
        said.unwrap_or_else(|e| panic!("kubectl {arguments:?}: {e}"))
    }

    fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(self.bin.join("kubectl"));
        command
            .args(arguments)
            .env("KUBECONFIG", self.at("kubeconfig"));
        let output = command.env("HOME", self.dir.path()).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    pub fn apply(&self, manifest: &Value) {
        self.write("manifest.json", &manifest.to_string());
        let file = self.at("manifest.json");
        self.kubectl(&["apply", "--filename", file.to_str().unwrap()]);
    }

    /// The ResourceSlices, with the rights of a kubeconfig's account.
    pub async fn slices(&self, kubeconfig: &Path) -> Api<ResourceSlice> {
        let read = Kubeconfig::read_from(kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(read, &options);
        Api::all(Client::try_from(config.await.unwrap()).unwrap())
    }

    pub fn start_driver(&mut self, node: &str, kubeconfig: &Path) {
        let machine = self.at("machine");
        sim(&[
            "new",
            machine.to_str().unwrap(),
            "--gpu",
            "A100-80GB",
            "--mig",
            "on",
        ]);
        let config = format!(
            "state_dir = {:?}\n[driver]\nlibrary = {:?}\nroot = {machine:?}\n[kubernetes]\nkubelet_dir = {:?}\n",
            self.at("state"),
            machine.join("lib/libnvidia-ml.so.1"),
            self.at("kubelet"),
        );
        self.write("config.toml", &config);
        let log = File::create(self.at("driver.log")).unwrap();
        let driver = Command::new(env!("CARGO_BIN_EXE_runmig-dra"))
            .args(["--node", node, "--claim-hook", "/bin/true", "--kubeconfig"])
            .arg(kubeconfig)
            .arg("--cdi-dir")
            .arg(self.at("cdi"))
            .env("RUNMIG_CONFIG", self.at("config.toml"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn();
        self.processes.push(driver.unwrap());
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in ["driver.log", "kube-apiserver.log"] {
                let text = fs::read_to_string(self.at(log)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().rev().take(15).collect();
                eprintln!("{log}:");
                lines.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

pub fn built() -> Option<PathBuf> {
    let cache = match std::env::var_os("RUNMIG_CACHE") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/runmig"),
    };
    let bin = cache.join("engines/kubernetes/current/bin");
    bin.join("kube-apiserver").exists().then_some(bin)
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

pub fn sim(arguments: &[&str]) {
    let programs = Path::new(env!("CARGO_BIN_EXE_runmig-dra")).with_file_name("nvml-sim");
    let output = Command::new(&programs).args(arguments).output();
    let output =
        output.unwrap_or_else(|e| panic!("{}: {e}; cargo build --workspace", programs.display()));
    assert!(output.status.success(), "{output:?}");
}

/// Asks again until it is so.
fn wait_until(what: &str, mut it_is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !it_is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Asks again until it is so.
pub async fn until(what: &str, mut it_is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !it_is_so().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
