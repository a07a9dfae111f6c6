//! The health of devices with claims: at the kubelet, and as taints.

use crate::cluster::{Cluster, sim, until};
use crate::{POOL, prepared, unprepare};
use k8s_openapi::api::resource::v1::{CounterSet, ResourceClaim, ResourceSlice};
use kube::Api;
use runmig_dra::kubelet::messages::{DeviceHealth, WatchRequest, WatchResponse};
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
    let stream = client.node_watch_resources(WatchRequest {}).await;
    stream.unwrap().into_inner()
}

/// The next message of the stream, or none at its end. The driver sends one every 30 seconds at least.
pub async fn next(stream: &mut Streaming<WatchResponse>) -> Option<WatchResponse> {
    let message = tokio::time::timeout(Duration::from_secs(120), stream.message());
    message.await.expect("a message in time").unwrap()
}

/// The device's health by the first look that tells this one.
async fn told(
    cluster: &Cluster,
    stream: &mut Streaming<WatchResponse>,
    device: &str,
    health: i32,
) -> DeviceHealth {
    cluster.poke();
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        assert!(
            Instant::now() < end,
            "never: device {device} has health {health}"
        );
        let message = next(stream).await.expect("a message");
        let mut devices = message.devices.into_iter();
        let is_it = |d: &DeviceHealth| {
            let id = d.device.as_ref().unwrap();
            (id.pool_name.as_str(), id.device_name.as_str()) == (POOL, device)
        };
        if let Some(found) = devices.find(is_it).filter(|d| d.health == health) {
            return found;
        }
    }
}

/// The effects of a taint. After 20 seconds of illness the second replaces the first, which a slow machine may never see.
const SICK: [Option<&str>; 2] = [Some("NoSchedule"), Some("NoExecute")];

/// Waits until the device has a taint with one of these effects, or none.
async fn tainted(cluster: &Cluster, device: &str, effects: &[Option<&str>]) {
    let api: Api<ResourceSlice> = Api::all(cluster.client.clone());
    until(
        &format!("device {device} has taint {effects:?}"),
        async || {
            cluster.poke();
            let slices = api.list(&Default::default()).await.unwrap();
            let mut devices = slices
                .items
                .into_iter()
                .filter_map(|s| s.spec.devices)
                .flatten();
            let found = devices.find(|d| d.name == device);
            found.is_some_and(|found| {
                let taint = found.taints.and_then(|mut taints| taints.pop());
                let is_ours = |key: &str| key == "runmig.dev/unhealthy";
                assert!(taint.as_ref().is_none_or(|t| is_ours(&t.key)), "{taint:?}");
                effects.contains(&taint.map(|taint| taint.effect).as_deref())
            })
        },
    )
    .await;
}

/// Destroys the only instance, as an administrator does. Returns its id.
pub fn destroy(cluster: &Cluster) -> String {
    destroy_with(cluster, &[])
}

fn destroy_with(cluster: &Cluster, more: &[&str]) -> String {
    let machine = cluster.at("machine");
    let machine = machine.to_str().unwrap();
    let shown = sim(&["show", machine, "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let id = shown["gpus"][0]["gpuInstances"][0]["id"].to_string();
    sim(&[&["destroy", machine, "--gpu", "0", "--gi", &id], more].concat());
    id
}

/// Waits until the claim has this condition in its status, as status, reason and the begin of the message.
async fn ready_is(cluster: &Cluster, [status, reason, message]: [&str; 3]) {
    let api: Api<ResourceClaim> = Api::default_namespaced(cluster.client.clone());
    until(&format!("the claim is {status}, {reason}"), async || {
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
    let api: Api<ResourceSlice> = Api::all(cluster.client.clone());
    let slices = api.list(&Default::default()).await.unwrap().items;
    let sets = slices.into_iter().filter_map(|s| s.spec.shared_counters);
    sets.flatten().collect()
}

const READY: [&str; 3] = ["True", "SliceMade", "the slice is made and works"];

/// With `evict` an illness that lasts evicts the pods.
/// Failure: a GPU is lost, its MIG mode goes off, or the API server is away at the driver's start
pub async fn health_follows_the_machine(cluster: &mut Cluster, device: &str) {
    let config = fs::read_to_string(cluster.at("config.toml")).unwrap();
    fs::write(cluster.at("config.toml"), format!("{config}evict = true\n")).unwrap();
    cluster.start_driver();
    let machine = cluster.at("machine");
    let machine = machine.to_str().unwrap();
    let mut stream = watch(cluster).await;
    let claim = cluster.claim("health", device, POOL).await;
    assert_eq!(prepared(cluster, &claim).await.error, "");
    let healthy = told(cluster, &mut stream, device, HEALTHY).await;
    assert_eq!(healthy.message, "");
    ready_is(cluster, READY).await;

    let id = destroy(cluster);
    let sick = told(cluster, &mut stream, device, UNHEALTHY).await;
    let words = format!("GPU instance {id} (1g.10gb at ");
    assert!(sick.message.starts_with(&words), "{sick:?}");
    assert!(sick.last_updated_time > 0 && sick.health_check_timeout_seconds > 30);
    ready_is(cluster, ["False", "InstanceGone", &words]).await;
    tainted(cluster, device, &SICK).await;
    tainted(cluster, device, &SICK[1..]).await;
    // Prepare makes the slice anew.
    assert_eq!(prepared(cluster, &claim).await.error, "");
    told(cluster, &mut stream, device, HEALTHY).await;
    ready_is(cluster, READY).await;
    tainted(cluster, device, &[None]).await;

    // The compute instance alone. The GPU instance has its place still.
    let counters = counters(cluster).await;
    let id = destroy_with(cluster, &["--ci", "0"]);
    let sick = told(cluster, &mut stream, device, UNHEALTHY).await;
    let words = format!("compute instance 0 of GPU instance {id} (1g.10gb at ");
    assert!(sick.message.starts_with(&words), "{sick:?}");
    ready_is(cluster, ["False", "InstanceGone", &words]).await;
    tainted(cluster, device, &SICK).await;
    assert_eq!(self::counters(cluster).await, counters);
    assert_eq!(prepared(cluster, &claim).await.error, "");
    told(cluster, &mut stream, device, HEALTHY).await;
    ready_is(cluster, READY).await;

    sim(&["lose", machine, "--gpu", "0"]);
    let sick = told(cluster, &mut stream, device, UNHEALTHY).await;
    assert!(sick.message.contains(" does not answer: "), "{sick:?}");
    ready_is(cluster, ["False", "GPUDoesNotAnswer", "GPU GPU-"]).await;
    tainted(cluster, device, &SICK).await;
    sim(&["restore", machine, "--gpu", "0"]);
    told(cluster, &mut stream, device, HEALTHY).await;
    ready_is(cluster, READY).await;

    destroy(cluster);
    sim(&["mig", machine, "--gpu", "0", "off"]);
    let mut sick = told(cluster, &mut stream, device, UNHEALTHY).await;
    // A look may have come before.
    while !sick.message.contains("MIG mode") {
        sick = told(cluster, &mut stream, device, UNHEALTHY).await;
    }
    assert_eq!(sick.message, "the MIG mode of GPU 0 is off");
    ready_is(cluster, ["False", "MIGModeOff", &sick.message]).await;
    tainted(cluster, device, &SICK).await;
    sim(&["mig", machine, "--gpu", "0", "on"]);
    assert_eq!(prepared(cluster, &claim).await.error, "");
    // A stream that begins later has the last look at once.
    let mut later = watch(cluster).await;
    told(cluster, &mut later, device, HEALTHY).await;
    ready_is(cluster, READY).await;
    tainted(cluster, device, &[None]).await;
    without_api_server(cluster, device).await;
    // The API server was away when the slice went, and the next process says so.
    fs::write(cluster.at("config.toml"), config).unwrap();
    cluster.start_driver();
    until("the claim is not ready", async || {
        cluster.poke();
        let api: Api<ResourceClaim> = Api::default_namespaced(cluster.client.clone());
        let status = api.get("health").await.unwrap().status.unwrap();
        serde_json::to_string(&status.devices)
            .unwrap()
            .contains("InstanceGone")
    })
    .await;
    unprepare(cluster, &claim).await;
}

/// The kubelet hears of the health from a driver that has never seen the API server.
async fn without_api_server(cluster: &mut Cluster, device: &str) {
    cluster.start_driver_alone();
    let mut stream = watch(cluster).await;
    told(cluster, &mut stream, device, HEALTHY).await;
    destroy(cluster);
    told(cluster, &mut stream, device, UNHEALTHY).await;
}
