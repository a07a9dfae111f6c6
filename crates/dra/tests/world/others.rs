//! Other programs that delete and change the driver's ResourceSlices, or publish under its name.

use crate::cluster::{Cluster, create, slice_of, until};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{Patch, PatchParams};
use testkit::prelude::*;

/// The time in which a restored ResourceSlice is there, with room for a busy machine: the driver needs 0.1 s.
const SOON: Duration = Duration::from_secs(20);

/// Failure: another program deletes or changes ResourceSlices
/// Failure: another program publishes for the node under the driver's name, or never stops to change ResourceSlices
#[tokio::test]
async fn restores_what_others_change() {
    let Some(cluster) = Cluster::up().await else {
        return;
    };
    cluster.devices().await;
    let before = cluster.slices().await;
    let api = cluster.all::<ResourceSlice>();
    let is_restored = async || cluster.slices().await == before;

    cluster.wipe().await;
    let start = Instant::now();
    until("all are there again", is_restored).await;
    assert!(start.elapsed() < SOON);
    let line = "is written again: another program has deleted it";
    cluster.says(0, line).await;

    let devices = { before.iter() }.find(|(_, spec)| spec.devices.is_some());
    let name = devices.unwrap().0;
    let evil = PatchParams {
        field_manager: Some("evil".to_owned()),
        ..PatchParams::default()
    };
    let none = Patch::Merge(json!({"spec": {"devices": [{"name": "evil"}]}}));
    api.patch(name, &evil, &none).await.unwrap();
    until("the changed one is restored", is_restored).await;
    let line =
        format!("ResourceSlice {name} is written again: another program (evil) has changed it");
    cluster.says(0, &line).await;

    // A second pool, and a newer generation of the driver's own.
    for (theirs, pool, generation) in [("second", "other", 1), ("newer", "runmig.node", 99)] {
        let its = json!({"name": pool, "generation": generation, "resourceSliceCount": 1});
        let here = json!({"nodeName": "node", "pool": its});
        create(&api, slice_of(theirs, "gpu.runmig.dev", pool, &here)).await;
        until("the foreign one is removed", is_restored).await;
        let line = format!("ResourceSlice {theirs} of pool {pool} is removed: another program");
        cluster.says(0, &line).await;
    }
    slows_down_a_contest(&cluster, name).await;
}

/// Another program that never stops gets one line, and does not make the driver write all the time.
async fn slows_down_a_contest(cluster: &Cluster, name: &str) {
    let api = cluster.all::<ResourceSlice>();
    let none = Patch::Merge(json!({"spec": {"devices": []}}));
    let from = cluster.log(0).len();
    let is_restored = async || {
        let slice = api.get_opt(name).await.unwrap();
        let devices = slice.and_then(|slice| slice.spec.devices);
        devices.is_some_and(|devices| !devices.is_empty())
    };
    let start = Instant::now();
    for _ in 0..2 {
        let write = PatchParams::default();
        api.patch(name, &write, &none).await.unwrap();
        until("the changed one is restored", is_restored).await;
    }
    // At once these would take less than a second in all: the pauses are 6 s and 12 s at least.
    let took = start.elapsed();
    assert!(took > Duration::from_secs(5), "{took:?}");
    let lines = cluster.log(from);
    let line = format!("ResourceSlice {name} is written again: ");
    let told = lines.iter().filter(|l| l.contains(&line)).count();
    assert_eq!(told, 1, "{lines:#?}");
}
