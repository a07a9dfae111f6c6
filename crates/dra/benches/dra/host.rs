//! A node: a simulated machine, a ledger, and the driver as a process. This process takes the kubelet's place.

use super::cluster::{Cluster, sim, until};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use runmig_dra::kubelet::messages::{Claim, ClaimList};
use runmig_dra::kubelet::services::d_r_a_plugin_client::DRAPluginClient;
use runmig_lease::config::Config;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// The time without a call of the GPU driver after which the node is at rest. It looks 100 ms after a change.
const REST: Duration = Duration::from_millis(160);

pub struct Host {
    pub name: String,
    pub config: Config,
    /// The published devices of the smallest profile, GPU by GPU.
    pub devices: Vec<String>,
    home: TempDir,
    driver: Child,
    plugin: DRAPluginClient<Channel>,
}

impl Host {
    /// Starts the driver and waits for its ResourceSlices.
    pub async fn start(cluster: &Cluster, name: &str, gpus: usize, program: Option<&Path>) -> Host {
        // The ledger and CDI files are on a tmpfs in real life too.
        let memory = Path::new("/dev/shm");
        let home = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        }
        .expect("a folder");
        let at = |file: &str| home.path().join(file);
        let machine = at("machine");
        let path = machine.to_str().expect("text");
        let count = gpus.to_string();
        sim(&["new", path, "--gpu", "A100-80GB", "--count", &count]);
        sim(&["trace", path, "on"]);
        let text = format!(
            "state_dir = {:?}\ndriver_files = \"none\"\n[driver]\nlibrary = {:?}\nroot = {machine:?}\n[kubernetes]\nkubelet_dir = {:?}\n",
            at("state"),
            machine.join("lib/libnvidia-ml.so.1"),
            at("kubelet"),
        );
        fs::write(at("config.toml"), text).expect("a file");
        cluster.node(name).await;
        let program = program.unwrap_or(Path::new(env!("CARGO_BIN_EXE_runmig-dra")));
        let driver = Command::new(program)
            .args(["--node", name, "--claim-hook", "/bin/true", "--kubeconfig"])
            .arg(cluster.driver())
            .arg("--cdi-dir")
            .arg(at("cdi"))
            .env("RUNMIG_CONFIG", at("config.toml"))
            .stdin(Stdio::null())
            .stderr(fs::File::create(at("driver.log")).expect("a file"))
            .spawn()
            .expect("runmig-dra");
        let socket = at("kubelet/plugins/gpu.runmig.dev/dra.sock");
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()));
        let mut host = Host {
            name: name.to_owned(),
            config: Config::read(&at("config.toml")).expect("the configuration"),
            devices: Vec::new(),
            plugin: DRAPluginClient::new(endpoint.expect("an address").connect_lazy()),
            home,
            driver,
        };
        until("the driver listens", async || socket.exists()).await;
        let slices: Api<ResourceSlice> = Api::all(cluster.client.clone());
        until("the ResourceSlices are published", async || {
            let list = slices.list(&Default::default()).await.expect("a list");
            let of_node = list
                .items
                .into_iter()
                .filter(|slice| slice.spec.node_name.as_deref() == Some(name));
            let devices = of_node.filter_map(|slice| slice.spec.devices).flatten();
            let names = devices.map(|device| device.name);
            host.devices = names
                .filter(|name| name.contains("-mig-1g-10gb-") && !name.contains("plus"))
                .collect();
            host.devices.len() == 7 * gpus
        })
        .await;
        host.devices.sort();
        host.rest().await;
        host
    }

    /// Runs a command of the simulated machine.
    pub fn sim(&self, verb: &str, arguments: &[&str]) -> String {
        let machine = self.machine();
        let machine = machine.to_str().expect("text");
        sim(&[&[verb, machine][..], arguments].concat())
    }

    fn machine(&self) -> PathBuf {
        self.home.path().join("machine")
    }

    pub fn process(&self) -> u32 {
        self.driver.id()
    }

    /// Says whether the driver has a session with NVML open, which keeps a file of the machine open.
    pub fn has_session(&self) -> bool {
        let open = fs::read_dir(format!("/proc/{}/fd", self.process())).expect("the driver runs");
        let mut files = open
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        files.any(|file| file.starts_with(self.machine()))
    }

    /// Waits until the driver has looked at the node and nothing has changed since.
    pub async fn rest(&self) {
        let log = self.machine().join("trace.log");
        let length = || fs::metadata(&log).map_or(0, |log| log.len());
        let mut last = u64::MAX;
        while last != length() {
            last = length();
            tokio::time::sleep(REST).await;
        }
    }

    /// Forgets the calls of the GPU driver so far.
    pub fn forget_calls(&self) {
        self.sim("trace", &["on"]);
    }

    /// Returns the CPU time of the GPU driver's functions since.
    pub fn driver_time(&self) -> Duration {
        let log = self.sim("trace", &["show"]);
        let nanoseconds = |line: &str| line.split(' ').nth(2)?.parse::<u64>().ok();
        Duration::from_nanos(log.lines().filter_map(nanoseconds).sum())
    }

    /// Returns the number of instances on record.
    pub fn instances(&self) -> usize {
        let store =
            runmig_lease::store::Store::open(&self.config.state_dir, self.config.lock_timeout);
        let listing = store.and_then(|store| store.list()).expect("the ledger");
        listing.entries.len()
    }

    pub async fn prepare(&self, claim: &Claim) {
        let claims = vec![claim.clone()];
        let mut plugin = self.plugin.clone();
        let answer = plugin.node_prepare_resources(ClaimList { claims }).await;
        let answers = answer.expect("an answer").into_inner().claims;
        assert_eq!(answers[&claim.uid].error, "");
    }

    pub async fn unprepare(&self, claim: &Claim) {
        let claims = vec![claim.clone()];
        let mut plugin = self.plugin.clone();
        let answer = plugin.node_unprepare_resources(ClaimList { claims }).await;
        let answers = answer.expect("an answer").into_inner().claims;
        assert_eq!(answers[&claim.uid].error, "");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.home.path().join("driver.log"));
            eprintln!("{}", log.unwrap_or_default());
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
