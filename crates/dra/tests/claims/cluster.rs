//! A real API server with its etcd, a simulated machine, and the driver beside them. The test takes the kubelet's place.

#[path = "../support/mod.rs"]
pub mod support;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use runmig_dra::kubelet::messages::Claim;
use runmig_dra::kubelet::services::d_r_a_plugin_client::DRAPluginClient;
use runmig_lease::store::Store;
use support::ControlPlane;
pub use support::{sim, until};
use testkit::prelude::*;
use tonic::transport::{Channel, Endpoint};

const LIMIT: Duration = Duration::from_secs(120);

/// The accounts of the API server, and its flags.
pub const TOKENS: &str = "secret,admin,admin,system:masters\nplain,nobody,nobody\n";
pub const FLAGS: [&str; 2] = [
    "--disable-admission-plugins=ServiceAccount",
    "--authorization-mode=AlwaysAllow",
];

pub struct Cluster {
    pub plane: ControlPlane,
    pub driver: Option<Child>,
    pub client: Client,
}

impl Cluster {
    /// None if a part of it is not built, or for users other than root.
    #[allow(dead_code)]
    pub async fn up() -> Option<Cluster> {
        Cluster::up_with(&FLAGS[1..]).await
    }

    /// The same with these flags for the API server. The token `plain` is of an account without rights.
    pub async fn up_with(extra: &[&str]) -> Option<Cluster> {
        let mut plane = ControlPlane::new(&support::programs()?);
        plane.make_node();
        plane.start(TOKENS, &[&FLAGS[..1], extra].concat());
        let client = support::client(&plane.kubeconfig("kubeconfig", "secret")).await;
        let mut cluster = Cluster {
            plane,
            driver: None,
            client,
        };
        support::answers(&cluster.client).await;
        cluster.start_driver();
        Some(cluster)
    }

    /// Starts the driver, in the place of one that runs.
    pub fn start_driver(&mut self) {
        self.end_driver();
        self.driver = Some(self.spawn_driver("driver.log"));
    }

    /// Starts the driver with an API server that never answers, in the place of one that runs.
    #[allow(dead_code)]
    pub fn start_driver_alone(&mut self) {
        self.end_driver();
        let [port] = support::free_ports();
        let nowhere = self.plane.kubeconfig_for(port, "nowhere", "secret");
        let driver = Command::new(env!("CARGO_BIN_EXE_runmig-dra"));
        let mut driver = (self.plane).as_driver(driver, "node", &nowhere, "driver.log");
        self.driver = Some(driver.spawn().unwrap());
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
    pub fn as_driver(&self, command: Command, log: &str) -> Command {
        let kubeconfig = self.at("kubeconfig");
        self.plane.as_driver(command, "node", &kubeconfig, log)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.plane.at(name)
    }

    /// Makes the driver look at once, by a ledger that is the same.
    pub fn poke(&self) {
        let store = Store::open(&self.at("state"), Duration::from_secs(10)).unwrap();
        let _ledger = store.lock("poke").unwrap();
        let (file, draft) = (self.at("state/ledger.json"), self.at("state/.poke"));
        if fs::copy(&file, &draft).is_err() {
            // Whoever looks meanwhile looks again at its end.
            fs::write(&draft, "").unwrap();
            fs::rename(&draft, &file).unwrap();
            return fs::remove_file(&file).unwrap();
        }
        fs::rename(&draft, &file).unwrap();
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
        if let Some(driver) = &mut self.driver {
            let _ = driver.kill();
            let _ = driver.wait();
        }
    }
}
