//! The health of devices with claims: at the kubelet, and as taints.

use crate::cluster::{Cluster, POOL, until};
use k8s_openapi::api::resource::v1::{CounterSet, ResourceClaim};
use runmig_dra::kubelet::messages::{DeviceHealth, WatchResponse};
use runmig_dra::kubelet::services::d_r_a_resource_health_client::DRAResourceHealthClient;
use testkit::prelude::*;
use tonic::Streaming;
use tonic::transport::Endpoint;

const HEALTHY: i32 = 1;
const UNHEALTHY: i32 = 2;

pub async fn watch(cluster: &Cluster) -> Streaming<WatchResponse> {
    // The socket exists with the plugin.
    cluster.plugin().await;
    let socket = cluster.at("kubelet/plugins/gpu.runmig.dev/dra.sock");
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut client = DRAResourceHealthClient::new(channel);
    let stream = client.node_watch_resources(()).await;
    stream.unwrap().into_inner()
}

/// The next message of the stream, or none at its end. The driver sends one every 30 seconds at least.
pub async fn next(stream: &mut Streaming<WatchResponse>) -> Option<WatchResponse> {
    let message = tokio::time::timeout(Duration::from_secs(120), stream.message());
    message.await.expect("a message in time").unwrap()
}

/// The effects of a taint. After 20 seconds of illness the second replaces the first, which a slow machine may never see.
const SICK: [Option<&str>; 2] = [Some("NoSchedule"), Some("NoExecute")];

/// Waits until the device has a taint with one of these effects, or none.
async fn tainted(cluster: &Cluster, device: &str, effects: &[Option<&str>]) {
    let what = format!("device {device} has taint {effects:?}");
    until(&what, async || {
        cluster.poke();
        let slices = cluster.published().await.into_iter();
        let mut devices = slices.filter_map(|s| s.spec.devices).flatten();
        let found = devices.find(|d| d.name == device);
        found.is_some_and(|found| {
            let taint = found.taints.and_then(|mut taints| taints.pop());
            let is_ours = |key: &str| key == "runmig.dev/unhealthy";
            assert!(taint.as_ref().is_none_or(|t| is_ours(&t.key)), "{taint:?}");
            effects.contains(&taint.map(|taint| taint.effect).as_deref())
        })
    })
    .await;
}

/// Destroys the only instance, as an administrator does. Returns its id.
pub fn destroy(cluster: &Cluster) -> String {
    destroy_with(cluster, &[])
}

fn destroy_with(cluster: &Cluster, more: &[&str]) -> String {
    let id = cluster.instances()[0]["id"].to_string();
    let it = ["--gpu", "0", "--gi", &id];
    cluster.sim("destroy", &[&it[..], more].concat());
    id
}

/// Waits until the claim has this condition in its status, as status, reason and the begin of the message.
async fn ready_is(cluster: &Cluster, [status, reason, message]: [&str; 3]) {
    let api = cluster.here::<ResourceClaim>();
    until(&format!("the claim is {status}, {reason}"), async || {
        cluster.poke();
        let claim = api.get("health").await.unwrap();
        let devices = claim.status.and_then(|status| status.devices);
        let conditions = devices.into_iter().flatten().filter_map(|d| d.conditions);
        let ready: Vec<_> = conditions.flatten().collect();
        assert!(ready.len() < 2, "{ready:?}");
        ready.first().is_some_and(|ready| {
            let is_it = (ready.type_.as_str(), ready.status.as_str()) == ("Ready", status);
            is_it && ready.reason == reason && ready.message.starts_with(message)
        })
    })
    .await;
}

/// The counters of the node.
async fn counters(cluster: &Cluster) -> Vec<CounterSet> {
    let slices = cluster.published().await;
    let sets = slices.into_iter().filter_map(|s| s.spec.shared_counters);
    sets.flatten().collect()
}

/// A device whose health the kubelet watches.
struct Watched<'c> {
    cluster: &'c Cluster,
    device: &'c str,
    stream: Streaming<WatchResponse>,
}

impl<'c> Watched<'c> {
    async fn begin(cluster: &'c Cluster, device: &'c str) -> Watched<'c> {
        let stream = watch(cluster).await;
        Watched {
            cluster,
            device,
            stream,
        }
    }

    /// The device's health by the first look that tells this one, with a message that begins with these words.
    async fn told(&mut self, health: i32, words: &str) -> DeviceHealth {
        self.cluster.poke();
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let device = self.device;
            assert!(Instant::now() < end, "never: {device} is {health}: {words}");
            let message = next(&mut self.stream).await.expect("a message");
            let mut devices = message.devices.into_iter();
            let is_it = |d: &DeviceHealth| {
                let id = d.device.as_ref().unwrap();
                (id.pool_name.as_str(), id.device_name.as_str()) == (POOL, device)
            };
            let is_so = |d: &DeviceHealth| d.health == health && d.message.starts_with(words);
            if let Some(found) = devices.find(is_it).filter(is_so) {
                return found;
            }
        }
    }

    /// Waits until the kubelet, the status of the claim and a taint tell of an illness.
    async fn is_sick(&mut self, reason: &str, words: &str) -> DeviceHealth {
        let sick = self.told(UNHEALTHY, words).await;
        ready_is(self.cluster, ["False", reason, &sick.message]).await;
        tainted(self.cluster, self.device, &SICK).await;
        sick
    }

    /// Waits until the kubelet and the status of the claim tell that the device works.
    async fn is_well(&mut self) {
        let healthy = self.told(HEALTHY, "").await;
        assert_eq!(healthy.message, "");
        let ready = ["True", "SliceMade", "the slice is made and works"];
        ready_is(self.cluster, ready).await;
    }
}

/// With `evict` an illness that lasts evicts the pods.
/// Failure: a GPU is lost, its MIG mode goes off, or the API server is away at the driver's start
pub async fn health_follows_the_machine(cluster: &mut Cluster, device: &str) {
    let config = fs::read_to_string(cluster.at("config.toml")).unwrap();
    fs::write(cluster.at("config.toml"), format!("{config}evict = true\n")).unwrap();
    cluster.start_driver();
    let mut watched = Watched::begin(cluster, device).await;
    let claim = cluster.claim("health", device, POOL).await;
    cluster.prepared(&claim).await;
    watched.is_well().await;

    let id = destroy(cluster);
    let words = format!("GPU instance {id} (1g.10gb at ");
    let sick = watched.is_sick("InstanceGone", &words).await;
    assert!(sick.last_updated_time > 0 && sick.health_check_timeout_seconds > 30);
    tainted(cluster, device, &SICK[1..]).await;
    // Prepare makes the slice anew.
    cluster.prepared(&claim).await;
    watched.is_well().await;
    tainted(cluster, device, &[None]).await;

    // The compute instance alone. The GPU instance has its place still.
    let counters = counters(cluster).await;
    let id = destroy_with(cluster, &["--ci", "0"]);
    let words = format!("compute instance 0 of GPU instance {id} (1g.10gb at ");
    watched.is_sick("InstanceGone", &words).await;
    assert_eq!(self::counters(cluster).await, counters);
    cluster.prepared(&claim).await;
    watched.is_well().await;

    cluster.sim("lose", &["--gpu", "0"]);
    let sick = watched.is_sick("GPUDoesNotAnswer", "GPU GPU-").await;
    has(&sick.message, " does not answer: ");
    cluster.sim("restore", &["--gpu", "0"]);
    watched.is_well().await;

    destroy(cluster);
    cluster.sim("mig", &["--gpu", "0", "off"]);
    let words = "the MIG mode of GPU 0 is off";
    let sick = watched.is_sick("MIGModeOff", words).await;
    assert_eq!(sick.message, words);
    cluster.sim("mig", &["--gpu", "0", "on"]);
    cluster.prepared(&claim).await;
    // A stream that begins later has the last look at once.
    Watched::begin(cluster, device).await.is_well().await;
    tainted(cluster, device, &[None]).await;
    without_api_server(cluster, device).await;
    // The API server was away when the slice went, and the next process says so.
    fs::write(cluster.at("config.toml"), config).unwrap();
    cluster.start_driver();
    ready_is(cluster, ["False", "InstanceGone", ""]).await;
    cluster.unprepare(&claim).await;
}

/// The kubelet hears of the health from a driver that has never seen the API server.
async fn without_api_server(cluster: &mut Cluster, device: &str) {
    cluster.start_driver_alone();
    let mut watched = Watched::begin(cluster, device).await;
    watched.told(HEALTHY, "").await;
    destroy(cluster);
    watched.told(UNHEALTHY, "GPU instance ").await;
}
