//! The largest nodes: 16 GPUs of several models, the longest node name, profiles with more places than a list takes.

use crate::cluster::{Cluster, are_all, create, until};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::api::{ListParams, Patch, PatchParams};
use runmig_dra::kubelet::messages::Claim;
use testkit::prelude::*;

/// The most devices of a ResourceSlice with counters.
const MAX_DEVICES: usize = 64;

/// A name of 253 characters, in labels of 63 at most.
fn longest_name() -> String {
    let label = "n".repeat(63);
    format!("{label}.{label}.{label}.{}", "m".repeat(61))
}

/// The API server takes all ResourceSlices, the scheduler fills the profile to its last place, and Prepare makes that.
/// Failure: a node has 16 GPUs of three models and a name of 253 characters
#[tokio::test]
async fn serves_the_largest_node() {
    // No kubelet removes the taint of a new node.
    let flags = [
        "--authorization-mode=AlwaysAllow",
        "--disable-admission-plugins=TaintNodesByCondition",
    ];
    let Some(mut cluster) = Cluster::up_with(&flags).await else {
        return;
    };
    let name = longest_name();
    assert_eq!(name.len(), 253);
    cluster.end_driver();
    fs::remove_dir_all(cluster.at("machine")).unwrap();
    let _ = fs::remove_dir_all(cluster.at("state"));
    let models = [("A100-80GB", "10"), ("H100-80GB", "4"), ("A30", "2")];
    let models = models.map(|(model, count)| ["--gpu", model, "--count", count]);
    cluster.sim("new", models.as_flattened());
    let kubeconfig = cluster.at("kubeconfig");
    cluster.start_driver_of(&name, &kubeconfig);

    let mut slices = Vec::new();
    until("the ResourceSlices are published", async || {
        let here = ListParams::default().fields(&format!("spec.nodeName={name}"));
        let all = cluster.all::<ResourceSlice>();
        slices = all.list(&here).await.unwrap().items;
        are_all(&slices)
    })
    .await;
    for slice in &slices {
        assert!(slice.spec.devices.iter().flatten().count() <= MAX_DEVICES);
    }
    lacks(&cluster.log(0).concat(), "is not published");
    let of_profile = |slice: &ResourceSlice| -> Vec<String> {
        let devices = slice.spec.devices.iter().flatten();
        let names = devices.map(|device| device.name.clone());
        let is_it = |name: &String| name.contains("-mig-1g-10gb-") && !name.contains("me-");
        names.filter(is_it).collect()
    };
    let mut lists: Vec<Vec<String>> = slices.iter().map(of_profile).collect();
    lists.retain(|list| !list.is_empty());
    // Seven places on each A100 and H100.
    assert_eq!(lists.iter().map(Vec::len).sum::<usize>(), 14 * 7);
    assert!(lists.len() > 1, "one list");
    let models: BTreeSet<&str> = { slices.iter() }
        .flat_map(|slice| slice.spec.devices.iter().flatten())
        .filter_map(|d| d.attributes.as_ref()?.get("productName")?.string.as_deref())
        .collect();
    assert_eq!(models.len(), 3, "{models:?}");

    schedules_every_place(&mut cluster, &name, lists.concat().len()).await;
    let device = lists.last().unwrap().last().unwrap();
    let claim = claim_of(&cluster, device).await;
    cluster.prepared(&claim).await;
    cluster.unprepare(&claim).await;
}

/// Pods with the profile's extended resource, one more than there are places.
async fn schedules_every_place(cluster: &mut Cluster, node: &str, places: usize) {
    let nodes = cluster.all::<Node>();
    let amounts = json!({"cpu": "1000", "memory": "1Ti", "pods": "1000"});
    create(&nodes, json!({"metadata": {"name": node}})).await;
    let status = json!({
        "capacity": amounts, "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    let status = Patch::Merge(json!({"status": status}));
    let write = PatchParams::default();
    nodes.patch_status(node, &write, &status).await.unwrap();
    let class = json!({
        "metadata": {"name": "mig-1g.10gb"},
        "spec": {
            "extendedResourceName": "nvidia.com/mig-1g.10gb",
            "selectors": [{"cel": {"expression":
                "device.driver == 'gpu.runmig.dev' && device.attributes['gpu.runmig.dev'].profile == '1g.10gb'"}}],
        },
    });
    create(&cluster.all::<DeviceClass>(), class).await;
    cluster.plane.start_scheduler();
    let pods = cluster.here::<Pod>();
    for at in 0..=places {
        let resources = json!({"limits": {"nvidia.com/mig-1g.10gb": "1"}});
        let pod = json!({
            "metadata": {"name": format!("p-{at:03}")},
            "spec": {"containers": [{"name": "c", "image": "none", "resources": resources}]},
        });
        create(&pods, pod).await;
    }
    let bound = async || {
        let list = pods.list(&ListParams::default()).await.unwrap().items;
        let is_bound = |pod: &&Pod| pod.spec.as_ref().unwrap().node_name.is_some();
        list.iter().filter(is_bound).count()
    };
    until("the pods fill the places", async || bound().await == places).await;
    // The last one knows why.
    until("one pod has no place", async || {
        let list = pods.list(&ListParams::default()).await.unwrap().items;
        let conditions = list.into_iter().filter_map(|pod| pod.status?.conditions);
        let mut messages = conditions.flatten().filter_map(|c| c.message);
        messages.any(|message| message.contains("cannot allocate all claims"))
    })
    .await;
    assert_eq!(bound().await, places);
    cluster.plane.stop("kube-scheduler");
}

/// The claim that the scheduler has made with a device.
async fn claim_of(cluster: &Cluster, device: &str) -> Claim {
    let api = cluster.here::<ResourceClaim>();
    let claims = api.list(&ListParams::default()).await.unwrap().items;
    let has_it = |claim: &ResourceClaim| {
        let status = claim.status.as_ref();
        let devices = status.and_then(|s| s.allocation.as_ref()?.devices.as_ref()?.results.clone());
        let mut results = devices.into_iter().flatten();
        results.any(|result| result.device == device)
    };
    let metadata = claims.into_iter().find(has_it).unwrap().metadata;
    Claim {
        namespace: "default".to_owned(),
        uid: metadata.uid.unwrap(),
        name: metadata.name.unwrap(),
    }
}
