//! Reports about claims in the API.

use crate::cluster::{Cluster, POOL, until};
use crate::health;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use testkit::prelude::*;

/// The devices in the status of a claim, as soon as it has so many.
async fn status_devices(cluster: &Cluster, claim: &str, count: usize) -> Vec<Value> {
    let api = cluster.here::<ResourceClaim>();
    let mut devices = Vec::new();
    until("the status has the devices", async || {
        let status = api.get(claim).await.unwrap().status.unwrap_or_default();
        let entries = status.devices.unwrap_or_default();
        devices = entries.iter().map(|d| json!(d)).collect();
        devices.len() == count
    })
    .await;
    devices
}

/// The words are those of migctl, and the entry of another driver stays. The next process writes what is missing.
pub async fn status_agrees_with_migctl(cluster: &mut Cluster, device: &str) {
    let devices = json!([
        {"driver": "gpu.runmig.dev", "pool": POOL, "device": device, "request": "slice"},
        {"driver": "net.example.com", "pool": "node", "device": "eth1", "request": "nic"},
    ]);
    // The other driver has reported its own already.
    let status = json!({"devices": [{
        "driver": "net.example.com", "pool": "node", "device": "eth1", "data": {"port": 1},
    }]});
    let claim = cluster.claim_of("reported", devices, status).await;
    cluster.prepared(&claim).await;
    let devices = status_devices(cluster, "reported", 2).await;
    let (theirs, ours) = (&devices[0], &devices[1]);
    assert_eq!(theirs["driver"], "net.example.com");
    assert_eq!(theirs["data"], json!({"port": 1}));
    let ready = &ours["conditions"][0];
    assert_eq!(ours["device"], device);
    assert_eq!([&ready["type"], &ready["status"]], ["Ready", "True"]);
    let list = cluster.migctl(&["list", "-o", "json"]).json();
    let [lease] = &list["items"].as_array().unwrap()[..] else {
        panic!("not one lease");
    };
    let data = &ours["data"];
    for key in "migUUID gpuUUID profile migPlacement gpuInstanceID computeInstanceID".split(' ') {
        let is_same = !data[key].is_null() && data[key] == lease[key];
        assert!(is_same, "{key}: {data} {lease}");
    }
    assert_eq!(data["node"], json!("node"));

    let none = json!({"devices": null});
    cluster.set_status("reported", none).await;
    cluster.start_driver();
    let [again] = &status_devices(cluster, "reported", 1).await[..] else {
        panic!("not one device");
    };
    assert_eq!(again["data"], *data);
    cluster.unprepare(&claim).await;
}

/// The text of the one event of a pod with a reason, as `kubectl describe pod` finds it.
async fn event(cluster: &Cluster, pod: &str, reason: &str) -> String {
    let api = cluster.here::<Event>();
    let its = format!("involvedObject.name={pod},involvedObject.uid=p-1,reason={reason}");
    let mut notes = Vec::new();
    until("the pod has an event", async || {
        let events = api.list(&ListParams::default().fields(&its)).await;
        let events = events.unwrap().items.into_iter();
        notes = events.map(|event| event.message.unwrap()).collect();
        !notes.is_empty()
    })
    .await;
    assert_eq!(notes.len(), 1, "{notes:?}");
    notes.remove(0)
}

/// A foreign instance has the place of the first claim. The second has to wait for a third, which has the whole GPU.
pub async fn events_name_the_holder(cluster: &Cluster, device: &str) {
    let place = ["--gpu", "0", "--profile", "1g.10gb", "--start", "0"];
    cluster.sim("create", &place);
    let claim = cluster.claim("moved", device, POOL).await;
    for _ in 0..2 {
        cluster.prepared(&claim).await;
    }
    let note = event(cluster, "pod-of-moved", "SliceMoved").await;
    let words = format!("not at the place of device {device}: GPU instance ");
    has(&note, &words);
    ends_with(&note, "which runmig did not make");
    cluster.unprepare(&claim).await;
    health::destroy(cluster);

    let whole = device.replace("1g-10gb-0-1", "7g-80gb-0-8");
    let first = cluster.claim("first", &whole, POOL).await;
    cluster.prepared(&first).await;
    let second = cluster.claim("second", &whole, POOL).await;
    let (waited, ()) = tokio::join!(cluster.prepare(&second), async {
        let note = event(cluster, "pod-of-second", "SliceWaits").await;
        let holder = "claim default/first (pod default/pod-of-first) has ";
        let words = format!("default/second waits for {whole}: {holder}");
        has(&note, &words);
        cluster.unprepare(&first).await;
    });
    assert_eq!(waited.error, "");
    cluster.unprepare(&second).await;
}

/// The ledger's log has a line for each action on a claim of the cases before, as standard error has.
pub fn log_has_each_action(cluster: &Cluster) {
    let [ledger, stderr] =
        ["state/runmig.log", "driver.log"].map(|log| fs::read_to_string(cluster.at(log)).unwrap());
    for action in [
        "is promised to claim default/bound (pod default/bound)",
        "is promised to claim default/moved (pod default/pod-of-moved) instead of 0:1: GPU instance ",
        "claim default/second (pod default/pod-of-second) waits: claim default/first ",
        "claim default/reported is prepared",
        "claim default/reported is unprepared",
        "claim default/deleted (pod default/pod-of-deleted) is released: the claim does not exist any more",
    ] {
        assert!(ledger.contains(action), "{action}: {ledger}");
        assert!(stderr.contains(action), "{action}: {stderr}");
    }
    assert!(stderr.contains(" is in place") && !ledger.contains(" is in place"));
}
