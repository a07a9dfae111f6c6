//! Claims that come with a bound pod, and go without a word of the kubelet.

use crate::cluster::{Cluster, POOL, until};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use testkit::prelude::*;

/// Makes a pod that is bound to the node and names a claim. Returns its uid.
async fn bound(cluster: &Cluster, name: &str, claim: &str) -> String {
    let uid = cluster.pod(name, claim).await;
    cluster.bind(name).await;
    uid
}

/// Changes a pod, so that the driver looks at it again.
async fn touch(cluster: &Cluster, pod: &str) {
    let label = Patch::Merge(json!({"metadata": {"labels": {"changed": "true"}}}));
    let (pods, write) = (cluster.here::<Pod>(), PatchParams::default());
    pods.patch(pod, &write, &label).await.unwrap();
}

/// The kubelet prepares a shared claim once, and the hook lets in only pods that are on record.
pub async fn names_later_pods_of_claim(cluster: &Cluster, device: &str) {
    let claim = cluster.claim("shared", device, POOL).await;
    cluster.prepared(&claim).await;
    let pods = || cluster.leases()[0].lease.claim().unwrap().pods.clone();
    let first = pods().remove(0);
    let late = bound(cluster, "late", "shared").await;
    let both = [(first.name.as_str(), first.uid.as_str()), ("late", &late)];
    cluster.reserve("shared", &both).await;
    touch(cluster, "late").await;
    until("the later pod is on record", async || pods().len() == 2).await;
    cluster.delete_pod("late").await;
    cluster.unprepare(&claim).await;
}

/// The place is on record before the kubelet asks for the slice, and free again when the pod goes.
pub async fn promises_claims_of_bound_pods(cluster: &Cluster, device: &str) {
    cluster.claim("bound", device, POOL).await;
    let uid = bound(cluster, "bound", "bound").await;
    // The claim is of another pod until here.
    cluster.reserve("bound", &[("bound", &uid)]).await;
    touch(cluster, "bound").await;
    until("the claim is promised", async || {
        cluster.leases().len() == 1
    })
    .await;
    let held = cluster.leases().remove(0);
    assert!(held.lease.is_promise(), "{held:?}");
    let title = "claim default/bound (pod default/bound)";
    assert_eq!(held.lease.holder.title(), title);
    assert_eq!(cluster.starts(), [0; 0]);

    cluster.reserve("bound", &[]).await;
    cluster.delete_pod("bound").await;
    until("the promise is gone", async || cluster.leases().is_empty()).await;
}

/// The driver was away when Kubernetes deleted the claim.
pub async fn sweeps_deleted_claims(cluster: &mut Cluster, device: &str) {
    let claim = cluster.claim("deleted", device, POOL).await;
    cluster.prepared(&claim).await;
    assert_eq!((cluster.starts().len(), cluster.cdi_files().len()), (1, 1));
    cluster.delete_claim("deleted").await;
    assert_eq!(cluster.leases().len(), 1);
    cluster.start_driver();
    until("the claim is swept", async || {
        cluster.leases().is_empty() && cluster.cdi_files().is_empty()
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
    cluster.prepared(&claim).await;
    cluster.migctl(&["release", "default/left"]);
    // The file of a claim that nobody knows, half-written, and one of another vendor.
    let unknown = "gpu.runmig.dev-0b7d5d6c-1111-4222-8333-9c5a0ce4c3a2.new";
    let theirs = cluster.at("cdi/nvidia.yaml");
    fs::write(cluster.at("cdi").join(unknown), "half").unwrap();
    fs::write(&theirs, "").unwrap();
    cluster.start_driver();
    let kept = [file, "nvidia.yaml".to_owned()];
    let files = || cluster.cdi_files();
    until("the unknown file is gone", async || files() == kept).await;
    cluster.delete_pod("left").await;
    until("the file is gone", async || files() == kept[1..]).await;
    fs::remove_file(theirs).unwrap();
    cluster.unprepare(&claim).await;
}
