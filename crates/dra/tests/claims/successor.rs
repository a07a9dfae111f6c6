//! Two processes of the driver on one node, as in a rollover: one publishes, both serve the kubelet.

use crate::cluster::{Cluster, POOL, until};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::DeleteParams;
use runmig_dra::kubelet::messages::ClaimList;
use std::fs;
use testkit::process::names_in;

/// The successor prepares claims beside the first process, and publishes only after that one's end.
/// Failure: two processes of the driver run on a node, and the first is killed
pub async fn one_process_publishes(cluster: &mut Cluster, device: &str) {
    let registry = cluster.at("kubelet/plugins_registry");
    let sockets = || names_in(&registry);
    // Else the successor may be the first.
    let driver = cluster.driver.as_ref().unwrap().0.id().to_string();
    until("the driver has its lock", async || {
        fs::read_to_string(cluster.at("state/dra.lock")).is_ok_and(|by| by.contains(&driver))
    })
    .await;
    let first = "gpu.runmig.dev@reg.sock".to_owned();
    let successor = cluster.spawn_driver("successor.log");
    let id = successor.0.id();
    until("the successor listens", async || sockets().len() == 2).await;
    let second = format!("gpu.runmig.dev-{id}@reg.sock");
    assert_eq!(sockets(), [second.clone(), first.clone()]);
    let log = cluster.at("successor.log");
    let says = async |line: &str| {
        until(line, async || {
            fs::read_to_string(&log).is_ok_and(|log| log.contains(line))
        })
        .await;
    };
    says("another runmig-dra publishes for this node, process ").await;

    // Each process answers, also both at once.
    let claim = cluster.claim("two-drivers", device, POOL).await;
    let mut second_plugin = cluster.plugin_at(&format!("dra-{id}.sock")).await;
    let claims = vec![claim.clone()];
    let request = ClaimList { claims };
    let (one, other) = tokio::join!(
        cluster.prepared(&claim),
        second_plugin.node_prepare_resources(request)
    );
    assert_eq!(other.unwrap().into_inner().claims[&claim.uid], one);
    assert_eq!(cluster.starts().len(), 1);
    cluster.unprepare(&claim).await;
    assert_eq!(cluster.starts().len(), 0);

    // A ResourceSlice that goes after the first process is restored by its successor alone.
    cluster.end_driver();
    says("this process publishes for this node now").await;
    let names = async || cluster.slices().await.into_keys().collect::<Vec<_>>();
    let all = names().await;
    let slices = cluster.all::<ResourceSlice>();
    let delete = DeleteParams::default();
    slices.delete(&all[0], &delete).await.unwrap();
    until("the successor restores it", async || names().await == all).await;

    // The sockets of the first process are dead, and the next process takes their place beside the successor's.
    cluster.start_driver();
    cluster.plugin().await;
    until("the next process listens", async || {
        sockets() == [second.clone(), first.clone()]
    })
    .await;
    drop(successor);
    // Killed: its socket stays until the next start.
    cluster.start_driver();
    until("the dead socket is gone", async || {
        sockets() == [first.clone()]
    })
    .await;
    cluster.plugin().await;
}
