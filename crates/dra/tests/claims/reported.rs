//! Reports about claims in the API.

use crate::cluster::{Cluster, until};
use crate::{POOL, prepared, unprepare};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::PostParams;
use runmig_dra::kubelet::messages::Claim;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The leases as `migctl list -o json` shows them.
fn listed(cluster: &Cluster) -> Vec<Value> {
    let program = Path::new(env!("CARGO_BIN_EXE_runmig-dra")).with_file_name("migctl");
    let output = Command::new(program)
        .args(["list", "-o", "json"])
        .env("RUNMIG_CONFIG", cluster.at("config.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// The devices in the status of a claim, as soon as it has so many.
async fn status_devices(cluster: &Cluster, claim: &str, count: usize) -> Vec<Value> {
    let api: Api<ResourceClaim> = Api::default_namespaced(cluster.client.clone());
    let mut devices = Vec::new();
    until("the status has the devices", async || {
        let status = api.get(claim).await.unwrap().status.unwrap_or_default();
        let entries = status.devices.unwrap_or_default();
        devices = entries
            .iter()
            .map(|d| serde_json::to_value(d).unwrap())
            .collect();
        devices.len() == count
    })
    .await;
    devices
}

/// A claim with a device of this driver and one of another driver, which has reported its own already.
async fn claim_beside_other_driver(cluster: &Cluster, device: &str) -> Claim {
    let api: Api<ResourceClaim> = Api::default_namespaced(cluster.client.clone());
    let requests = ["slice", "nic"]
        .map(|name| json!({"name": name, "exactly": {"deviceClassName": "mig-1g.10gb"}}));
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "reported"},
        "spec": {"devices": {"requests": requests}},
    });
    let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
    let made = api.create(&PostParams::default(), &claim).await.unwrap();
    let results = json!([
        {"driver": "gpu.runmig.dev", "pool": POOL, "device": device, "request": "slice"},
        {"driver": "net.example.com", "pool": "node", "device": "eth1", "request": "nic"},
    ]);
    let status = json!({
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "pod-of-reported", "uid": "p-1"}],
        "devices": [{
            "driver": "net.example.com", "pool": "node", "device": "eth1", "data": {"port": 1},
        }],
    });
    cluster.set_status("reported", status).await;
    Claim {
        namespace: "default".to_owned(),
        uid: made.metadata.uid.unwrap(),
        name: "reported".to_owned(),
    }
}

/// The words are those of migctl, and the entry of another driver stays. What an earlier process has not written, the
/// next one does.
pub async fn status_agrees_with_migctl(cluster: &mut Cluster, device: &str) {
    let claim = claim_beside_other_driver(cluster, device).await;
    assert_eq!(prepared(cluster, &claim).await.error, "");
    let devices = status_devices(cluster, "reported", 2).await;
    let theirs = &devices[0];
    assert_eq!(
        (&theirs["driver"], &theirs["data"]),
        (&json!("net.example.com"), &json!({"port": 1}))
    );
    let ours = &devices[1];
    let ready = &ours["conditions"][0];
    assert_eq!(
        (&ours["device"], &ready["type"], &ready["status"]),
        (&json!(device), &json!("Ready"), &json!("True"))
    );
    let [lease] = &listed(cluster)[..] else {
        panic!("not one lease");
    };
    let data = &ours["data"];
    for key in [
        "migUUID",
        "gpuUUID",
        "profile",
        "gpuInstanceID",
        "computeInstanceID",
    ] {
        assert!(
            !data[key].is_null() && data[key] == lease[key],
            "{key}: {data} {lease}"
        );
    }
    assert_eq!(data["placement"], lease["migPlacement"]);
    assert_eq!(data["node"], json!("node"));

    cluster
        .set_status("reported", json!({"devices": null}))
        .await;
    cluster.start_driver();
    let [again] = &status_devices(cluster, "reported", 1).await[..] else {
        panic!("not one device");
    };
    assert_eq!(again["data"], *data);
    unprepare(cluster, &claim).await;
}
