//! A real API server with its etcd, a simulated machine, and the driver beside them. The test takes the kubelet's place.

// Each user needs other parts.
#![allow(dead_code)]

#[path = "mod.rs"]
pub mod support;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use runmig_dra::kubelet::messages::{Claim, ClaimList, Prepared};
use runmig_dra::kubelet::services::d_r_a_plugin_client::DRAPluginClient;
use runmig_lease::config::Config;
use runmig_lease::store::{Held, Store};
use runmig_lease::{Leases, NoBundles};
pub use support::until;
use support::{ControlPlane, sim};
use testkit::prelude::*;
use testkit::process::Killed;
use tonic::transport::{Channel, Endpoint};

const LIMIT: Duration = Duration::from_secs(120);

/// The pool of the node.
pub const POOL: &str = "runmig.node";

/// The accounts of the API server, and its flags.
pub const TOKENS: &str = "secret,admin,admin,system:masters\nplain,nobody,nobody\n";
pub const FLAGS: [&str; 2] = [
    "--disable-admission-plugins=ServiceAccount",
    "--authorization-mode=AlwaysAllow",
];

pub struct Cluster {
    /// Ends before the folder in which it writes.
    pub driver: Option<Killed>,
    pub plane: ControlPlane,
    pub client: Client,
}

impl Cluster {
    /// None if a part of it is not built, or for users other than root.
    pub async fn up() -> Option<Cluster> {
        Cluster::up_with(&FLAGS[1..]).await
    }

    /// The same with these flags for the API server. The token `plain` is of an account without rights.
    pub async fn up_with(extra: &[&str]) -> Option<Cluster> {
        let mut cluster = Cluster::without_driver(&[&FLAGS[..1], extra].concat()).await?;
        cluster.start_driver();
        Some(cluster)
    }

    /// An API server with these flags, and a machine without a driver.
    pub async fn without_driver(flags: &[&str]) -> Option<Cluster> {
        let mut plane = ControlPlane::new(&support::programs()?);
        plane.make_node();
        plane.start(TOKENS, flags);
        let client = support::client(&plane.kubeconfig("kubeconfig", "secret")).await;
        support::answers(&client).await;
        Some(Cluster {
            plane,
            driver: None,
            client,
        })
    }

    /// Starts the driver, in the place of one that runs.
    pub fn start_driver(&mut self) {
        self.end_driver();
        self.driver = Some(self.spawn_driver("driver.log"));
    }

    /// Starts the driver with an API server that never answers, in the place of one that runs.
    pub fn start_driver_alone(&mut self) {
        let [port] = support::free_ports();
        let nowhere = self.plane.kubeconfig_for(port, "nowhere", "secret");
        self.start_driver_of("node", &nowhere);
    }

    /// Starts the driver of another node or account, in the place of one that runs.
    pub fn start_driver_of(&mut self, node: &str, kubeconfig: &Path) {
        self.end_driver();
        let driver = Command::new(env!("CARGO_BIN_EXE_runmig-dra"));
        let mut driver = (self.plane).as_driver(driver, node, kubeconfig, "driver.log");
        self.driver = Some(Killed(driver.spawn().unwrap()));
    }

    pub fn end_driver(&mut self) {
        self.driver = None;
    }

    /// Starts a process of the driver with this log.
    pub fn spawn_driver(&self, log: &str) -> Killed {
        let driver = Command::new(env!("CARGO_BIN_EXE_runmig-dra"));
        Killed(self.as_driver(driver, log).spawn().unwrap())
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

    /// Asks for a claim, as the kubelet does. None if the driver died at it.
    pub async fn try_prepare(&self, claim: &Claim) -> Option<Prepared> {
        let claims = vec![claim.clone()];
        let mut plugin = self.plugin().await;
        let answer = plugin.node_prepare_resources(ClaimList { claims });
        let mut answers = answer.await.ok()?.into_inner().claims;
        assert_eq!(answers.len(), 1);
        answers.remove(&claim.uid)
    }

    pub async fn prepare(&self, claim: &Claim) -> Prepared {
        let answer = self.try_prepare(claim).await;
        answer.expect("an answer of the driver")
    }

    /// Asks for a claim, which has to succeed.
    pub async fn prepared(&self, claim: &Claim) -> Prepared {
        let answer = self.prepare(claim).await;
        assert_eq!(answer.error, "");
        answer
    }

    /// Ends a claim, as the kubelet does. Returns the error; none if the driver died at it.
    pub async fn try_unprepare(&self, claim: &Claim) -> Option<String> {
        let claims = vec![claim.clone()];
        let mut plugin = self.plugin().await;
        let answer = plugin.node_unprepare_resources(ClaimList { claims });
        let answer = answer.await.ok()?.into_inner().claims.remove(&claim.uid);
        answer.map(|answer| answer.error)
    }

    /// Ends a claim twice, since the kubelet repeats a call whose answer it lost.
    pub async fn unprepare(&self, claim: &Claim) {
        for _ in 0..2 {
            assert_eq!(self.try_unprepare(claim).await.as_deref(), Some(""));
        }
    }

    /// The objects of a kind without a namespace.
    pub fn all<K>(&self) -> Api<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    /// The objects of a kind in the default namespace.
    pub fn here<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::default_namespaced(self.client.clone())
    }

    /// Makes a claim with this device, reserved for a pod.
    pub async fn claim(&self, name: &str, device: &str, pool: &str) -> Claim {
        let slice = json!({
            "driver": "gpu.runmig.dev", "pool": pool, "device": device, "request": "slice",
        });
        self.claim_of(name, json!([slice]), json!({})).await
    }

    /// The same with these devices, and more in its status.
    pub async fn claim_of(&self, name: &str, devices: Value, mut status: Value) -> Claim {
        let class = |device: &Value| {
            let class = json!({"deviceClassName": "mig-1g.10gb"});
            json!({"name": device["request"], "exactly": class})
        };
        let requests: Vec<Value> = devices.as_array().unwrap().iter().map(class).collect();
        let object = json!({
            "metadata": {"name": name}, "spec": {"devices": {"requests": requests}},
        });
        let made = create(&self.here::<ResourceClaim>(), object).await;
        let pod = json!({"resource": "pods", "name": format!("pod-of-{name}"), "uid": "p-1"});
        status["allocation"]["devices"] = json!({"results": devices});
        status["reservedFor"] = json!([pod]);
        self.set_status(name, status).await;
        Claim {
            namespace: "default".to_owned(),
            uid: made.metadata.uid.unwrap(),
            name: name.to_owned(),
        }
    }

    pub async fn set_status(&self, claim: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        let (claims, write) = (self.here::<ResourceClaim>(), PatchParams::default());
        let written = claims.patch_status(claim, &write, &patch);
        written.await.unwrap();
    }

    /// Reserves a claim for these pods, each by name and uid.
    pub async fn reserve(&self, claim: &str, pods: &[(&str, &str)]) {
        let pod =
            |(name, uid): &(&str, &str)| json!({"resource": "pods", "name": name, "uid": uid});
        let pods: Vec<Value> = pods.iter().map(pod).collect();
        self.set_status(claim, json!({"reservedFor": pods})).await;
    }

    /// Deletes a claim, if it is there.
    pub async fn delete_claim(&self, name: &str) {
        let api = self.here::<ResourceClaim>();
        let _ = api.delete(name, &DeleteParams::default()).await;
        until("the claim is gone", async || {
            api.get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    /// Waits until the driver publishes devices.
    pub async fn publishes(&self) {
        until("the ResourceSlices are published", async || {
            self.published().await.len() > 1
        })
        .await;
    }

    /// Makes a pod that names a claim, and that no scheduler has bound yet. Returns its uid.
    pub async fn pod(&self, name: &str, claim: &str) -> String {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "c", "image": "none"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
            },
        });
        let made = create(&self.here::<Pod>(), pod).await;
        made.metadata.uid.unwrap()
    }

    /// Binds a pod, as the scheduler does.
    pub async fn bind(&self, pod: &str) {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
        });
        let (pods, write) = (self.here::<Pod>(), PostParams::default());
        let bound = pods.create_subresource("binding", pod, &write, &binding);
        let _: Value = bound.await.unwrap();
    }

    /// Deletes a pod, if it is there.
    pub async fn delete_pod(&self, name: &str) {
        let now = DeleteParams::default().grace_period(0);
        let _ = self.here::<Pod>().delete(name, &now).await;
    }

    /// The ResourceSlices of the driver.
    pub async fn published(&self) -> Vec<ResourceSlice> {
        self.all().list(&ours()).await.unwrap().items
    }

    /// The same by name. Their devices are sorted: the order follows each claim a moment later.
    pub async fn slices(&self) -> BTreeMap<String, ResourceSliceSpec> {
        let slices = self.published().await.into_iter();
        let sorted = |mut spec: ResourceSliceSpec| {
            let devices = spec.devices.iter_mut();
            devices.for_each(|devices| devices.sort_by_key(|device| device.name.clone()));
            spec
        };
        slices
            .map(|slice| (slice.metadata.name.unwrap(), sorted(slice.spec)))
            .collect()
    }

    /// Deletes all of them, as a kubelet does at its start.
    pub async fn wipe(&self) {
        let slices = self.all::<ResourceSlice>();
        let delete = DeleteParams::default();
        slices.delete_collection(&delete, &ours()).await.unwrap();
    }

    /// Waits until the driver has published. Returns the names of the devices of the smallest profile, by place.
    pub async fn devices(&self) -> Vec<String> {
        let mut slices = Vec::new();
        until("the ResourceSlices are published", async || {
            slices = self.published().await;
            are_all(&slices)
        })
        .await;
        let devices = slices.into_iter().filter_map(|slice| slice.spec.devices);
        let mut names: Vec<String> = devices.flatten().map(|device| device.name).collect();
        names.retain(|name| name.contains("-mig-1g-10gb-") && !name.contains("plus"));
        names.sort();
        names
    }

    /// The leases of claims in the ledger.
    pub fn leases(&self) -> Vec<Held> {
        let config = Config::read(&self.at("config.toml")).unwrap();
        let leases = Leases::existing(&config, Box::new(NoBundles)).unwrap();
        leases.map_or_else(Vec::new, |leases| leases.claims().unwrap())
    }

    /// The lines of the driver's log from a place on, without their times.
    pub fn log(&self, from: usize) -> Vec<String> {
        let log = fs::read_to_string(self.at("driver.log")).unwrap_or_default();
        let text = |line: &str| {
            let text = line.split_once(' ').map_or(line, |(_, text)| text);
            text.trim().to_owned()
        };
        log.lines().skip(from).map(text).collect()
    }

    /// Waits until the log says so after this line.
    pub async fn says(&self, from: usize, words: &str) {
        until(&format!("the log says: {words}"), async || {
            self.log(from).iter().any(|line| line.contains(words))
        })
        .await;
    }

    /// `migctl ARGUMENTS`, which has to succeed.
    pub fn migctl(&self, arguments: &[&str]) -> Said {
        let mut migctl = Command::new(program("migctl"));
        migctl.env("RUNMIG_CONFIG", self.at("config.toml"));
        said(migctl.args(arguments)).ok()
    }

    /// `nvml-sim VERB` on its machine.
    pub fn sim(&self, verb: &str, arguments: &[&str]) -> String {
        let machine = self.at("machine");
        sim(&[&[verb, machine.to_str().unwrap()], arguments].concat())
    }

    /// The machine's GPU instances.
    pub fn instances(&self) -> Vec<Value> {
        let shown: Value = serde_json::from_str(&self.sim("show", &["--json"])).unwrap();
        let instances = shown["gpus"][0]["gpuInstances"].as_array().cloned();
        instances.unwrap_or_default()
    }

    /// The places of the machine's GPU instances.
    pub fn starts(&self) -> Vec<u64> {
        let instances = self.instances();
        let mut starts: Vec<u64> = { instances.iter() }
            .map(|instance| instance["placement"]["start"].as_u64().unwrap())
            .collect();
        starts.sort_unstable();
        starts
    }

    /// Nothing is left of a claim.
    #[track_caller]
    pub fn is_empty(&self) {
        assert_eq!((self.starts(), self.cdi_files()), (vec![], vec![]));
    }

    pub fn cdi_file(&self, claim: &Claim) -> PathBuf {
        let name = format!("gpu.runmig.dev-{}.json", claim.uid);
        self.at("cdi").join(name)
    }

    /// Returns the names in the folder of CDI files, sorted.
    pub fn cdi_files(&self) -> Vec<String> {
        names_in(&self.at("cdi"))
    }
}

/// The ResourceSlices of the driver.
fn ours() -> ListParams {
    ListParams::default().fields("spec.driver=gpu.runmig.dev")
}

/// A ResourceSlice of a driver in a pool, with a device and with more in its specification.
pub fn slice_of(name: &str, driver: &str, pool: &str, more: &Value) -> Value {
    let mut spec = json!({
        "driver": driver, "devices": [{"name": "gpu-0"}],
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
    });
    let all = spec.as_object_mut().unwrap();
    all.extend(more.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Creates an object.
pub async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

/// Says whether these are all ResourceSlices of their pool.
pub fn are_all(slices: &[ResourceSlice]) -> bool {
    let first = slices.first();
    first.is_some_and(|slice| slice.spec.pool.resource_slice_count == slices.len() as i64)
}
