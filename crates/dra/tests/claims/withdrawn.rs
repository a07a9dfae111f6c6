//! Claims that come with a bound pod, and go without a word of the kubelet.

use crate::cluster::{Cluster, until};
use crate::{POOL, prepared};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use runmig_lease::config::Config;
use runmig_lease::store::Held;
use runmig_lease::{LeaseManager, NoBundles};
use serde_json::json;

/// The leases of claims in the ledger.
fn claims(cluster: &Cluster) -> Vec<Held> {
    let config = Config::read(&cluster.at("config.toml")).unwrap();
    let leases = LeaseManager::existing(&config, Box::new(NoBundles)).unwrap();
    leases.map_or_else(Vec::new, |leases| leases.claims().unwrap())
}

/// The place is on record before the kubelet asks for the slice, and free again when the pod goes.
pub async fn promises_claims_of_bound_pods(cluster: &Cluster, device: &str) {
    cluster.claim("bound", device, POOL).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let pod = json!({
        "metadata": {"name": "bound"},
        "spec": {
            "nodeName": "node",
            "containers": [{"name": "c", "image": "none"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "bound"}],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let made = pods.create(&PostParams::default(), &pod).await.unwrap();
    // The claim is of another pod until here.
    let reference =
        json!({"resource": "pods", "name": "bound", "uid": made.metadata.uid.as_ref().unwrap()});
    let reserved = |pods: Vec<_>| cluster.set_status("bound", json!({"reservedFor": pods}));
    reserved(vec![reference]).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"changed": "true"}}}));
    let changed = pods.patch("bound", &PatchParams::default(), &label).await;
    changed.unwrap();
    until("the claim is promised", async || claims(cluster).len() == 1).await;
    let held = claims(cluster).remove(0);
    assert!(held.lease.is_promise(), "{held:?}");
    assert_eq!(
        held.lease.holder.title(),
        "claim default/bound (pod default/bound)"
    );
    assert_eq!(cluster.starts(), [0; 0]);

    reserved(vec![]).await;
    let now = DeleteParams::default().grace_period(0);
    pods.delete("bound", &now).await.unwrap();
    until("the promise is gone", async || claims(cluster).is_empty()).await;
}

/// The driver was away when Kubernetes deleted the claim.
pub async fn sweeps_deleted_claims(cluster: &mut Cluster, device: &str) {
    let claim = cluster.claim("deleted", device, POOL).await;
    assert_eq!(prepared(cluster, &claim).await.error, "");
    assert_eq!((cluster.starts().len(), cluster.cdi_files().len()), (1, 1));
    let api: Api<ResourceClaim> = Api::default_namespaced(cluster.client.clone());
    api.delete("deleted", &DeleteParams::default())
        .await
        .unwrap();
    until("the claim is gone", async || {
        api.get_opt("deleted").await.unwrap().is_none()
    })
    .await;
    assert_eq!(claims(cluster).len(), 1);
    cluster.start_driver();
    until("the claim is swept", async || {
        claims(cluster).is_empty() && cluster.cdi_files().is_empty()
    })
    .await;
    assert_eq!(cluster.starts(), [0; 0]);
}
