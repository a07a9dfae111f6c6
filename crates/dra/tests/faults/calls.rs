//! The kubelet's calls, and looks at the ledger and the API.

use crate::cluster::{Cluster, until};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use runmig_dra::kubelet::messages::{Claim, PrepareRequest, Prepared, UnprepareRequest};
use runmig_lease::config::Config;
use runmig_lease::store::{Entry, Held, Store};
use runmig_lease::{Leases, NoBundles};
use testkit::prelude::*;

pub const POOL: &str = "runmig.node";

pub fn slices_api(client: &Client) -> Api<ResourceSlice> {
    Api::all(client.clone())
}

pub fn claims_api(client: &Client) -> Api<ResourceClaim> {
    Api::default_namespaced(client.clone())
}

pub fn pods_api(client: &Client) -> Api<Pod> {
    Api::default_namespaced(client.clone())
}

/// The names of the published devices of the smallest profile, by place.
pub async fn devices(cluster: &Cluster) -> Vec<String> {
    let mut names = Vec::new();
    until("the ResourceSlices are published", async || {
        let slices = slices_api(&cluster.client).list(&Default::default()).await;
        let devices = { slices.unwrap().items.into_iter() }.filter_map(|slice| slice.spec.devices);
        names = devices.flatten().map(|device| device.name).collect();
        !names.is_empty()
    })
    .await;
    names.retain(|name| name.contains("-mig-1g-10gb-") && !name.contains("plus"));
    names.sort();
    names
}

/// Asks once. None if the driver died at it.
pub async fn try_prepare(cluster: &Cluster, claim: &Claim) -> Option<Prepared> {
    let claims = vec![claim.clone()];
    let mut plugin = cluster.plugin().await;
    let answer = plugin
        .node_prepare_resources(PrepareRequest { claims })
        .await;
    answer.ok()?.into_inner().claims.remove(&claim.uid)
}

pub async fn prepare(cluster: &Cluster, claim: &Claim) -> Prepared {
    let answer = try_prepare(cluster, claim).await;
    answer.expect("an answer of the driver")
}

/// Asks once. None if the driver died at it.
pub async fn try_unprepare(cluster: &Cluster, claim: &Claim) -> Option<String> {
    let claims = vec![claim.clone()];
    let mut plugin = cluster.plugin().await;
    let answer = plugin
        .node_unprepare_resources(UnprepareRequest { claims })
        .await;
    let answer = answer.ok()?.into_inner().claims.remove(&claim.uid);
    answer.map(|answer| answer.error)
}

/// The leases of claims in the ledger.
pub fn leases(cluster: &Cluster) -> Vec<Held> {
    let config = Config::read(&cluster.at("config.toml")).unwrap();
    let leases = Leases::existing(&config, Box::new(NoBundles)).unwrap();
    leases.map_or_else(Vec::new, |leases| leases.claims().unwrap())
}

/// The leases and instances in the ledger.
pub fn records(cluster: &Cluster) -> Vec<Entry> {
    let store = Store::open(&cluster.at("state"), Duration::from_secs(10)).unwrap();
    store.list().unwrap().entries
}

pub async fn delete_claim(cluster: &Cluster, name: &str) {
    let api = claims_api(&cluster.client);
    let _ = api.delete(name, &DeleteParams::default()).await;
    until("the claim is gone", async || {
        api.get_opt(name).await.unwrap().is_none()
    })
    .await;
}

/// Makes a pod that no scheduler has bound yet. Returns its uid.
pub async fn pod(cluster: &Cluster, name: &str, claim: &str) -> String {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "none"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let made = { pods_api(&cluster.client) }
        .create(&PostParams::default(), &pod)
        .await;
    made.unwrap().metadata.uid.unwrap()
}

/// Binds a pod, as the scheduler does.
pub async fn bind(cluster: &Cluster, pod: &str) {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
    });
    let (pods, write) = (pods_api(&cluster.client), PostParams::default());
    let bound = { pods.create_subresource("binding", pod, &write, &binding) }.await;
    let _: serde_json::Value = bound.unwrap();
}

pub async fn delete_pod(cluster: &Cluster, name: &str) {
    let now = DeleteParams::default().grace_period(0);
    let _ = pods_api(&cluster.client).delete(name, &now).await;
}
