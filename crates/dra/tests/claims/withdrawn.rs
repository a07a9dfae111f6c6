//! Claims that come with a bound pod, and go without a word of the kubelet.

use crate::cluster::{Cluster, until};
use crate::{POOL, prepared, unprepare};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use runmig_lease::config::Config;
use runmig_lease::store::Held;
use runmig_lease::{Leases, NoBundles};
use testkit::prelude::*;

/// The leases of claims in the ledger.
fn claims(cluster: &Cluster) -> Vec<Held> {
    let config = Config::read(&cluster.at("config.toml")).unwrap();
    let leases = Leases::existing(&config, Box::new(NoBundles)).unwrap();
    leases.map_or_else(Vec::new, |leases| leases.claims().unwrap())
}

/// Returns a pod that is bound to the node and names a claim.
async fn bound(cluster: &Cluster, name: &str, claim: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": "node",
            "containers": [{"name": "c", "image": "none"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    pods.create(&PostParams::default(), &pod).await.unwrap()
}

/// The kubelet prepares a shared claim once, and the hook lets in only pods that are on record.
pub async fn names_later_pods_of_claim(cluster: &Cluster, device: &str) {
    let claim = cluster.claim("shared", device, POOL).await;
    assert_eq!(prepared(cluster, &claim).await.error, "");
    let pods = || claims(cluster)[0].lease.claim().unwrap().pods.clone();
    let first = pods();
    let late = bound(cluster, "late", "shared").await;
    let mut all = vec![json!({"resource": "pods", "name": first[0].name, "uid": first[0].uid})];
    all.push(json!({"resource": "pods", "name": "late", "uid": late.metadata.uid}));
    cluster
        .set_status("shared", json!({"reservedFor": all}))
        .await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"changed": "true"}}}));
    let api: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    api.patch("late", &PatchParams::default(), &label)
        .await
        .unwrap();
    until("the later pod is on record", async || pods().len() == 2).await;
    let now = DeleteParams::default().grace_period(0);
    api.delete("late", &now).await.unwrap();
    unprepare(cluster, &claim).await;
}

/// The place is on record before the kubelet asks for the slice, and free again when the pod goes.
pub async fn promises_claims_of_bound_pods(cluster: &Cluster, device: &str) {
    cluster.claim("bound", device, POOL).await;
    let made = bound(cluster, "bound", "bound").await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
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

/// An operator released a claim by hand. The file stays as long as a pod names the claim.
/// Failure: Kubernetes forgets a claim, and no Unprepare comes, and its CDI file stays
pub async fn sweeps_files_without_lease(cluster: &mut Cluster, device: &str) {
    let claim = cluster.claim("left", device, POOL).await;
    let file = format!("gpu.runmig.dev-{}.json", claim.uid);
    bound(cluster, "left", "left").await;
    assert_eq!(prepared(cluster, &claim).await.error, "");
    release(cluster, "default/left");
    // The file of a claim that nobody knows, half-written, and one of another vendor.
    let unknown = "gpu.runmig.dev-0b7d5d6c-1111-4222-8333-9c5a0ce4c3a2.new";
    let theirs = cluster.at("cdi/nvidia.yaml");
    std::fs::write(cluster.at("cdi").join(unknown), "half").unwrap();
    std::fs::write(&theirs, "").unwrap();
    cluster.start_driver();
    let files = || {
        let mut files = cluster.cdi_files();
        files.sort();
        files
    };
    let kept = [file, "nvidia.yaml".to_owned()];
    until("the unknown file is gone", async || files() == kept).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let now = DeleteParams::default().grace_period(0);
    pods.delete("left", &now).await.unwrap();
    until("the file is gone", async || files() == kept[1..]).await;
    std::fs::remove_file(theirs).unwrap();
    unprepare(cluster, &claim).await;
}

fn release(cluster: &Cluster, claim: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_runmig-dra")).with_file_name("migctl");
    let mut migctl = Command::new(program);
    migctl.args(["release", claim]);
    let output = migctl
        .env("RUNMIG_CONFIG", cluster.at("config.toml"))
        .output();
    assert!(output.as_ref().unwrap().status.success(), "{output:?}");
}
