//! The rights of the driver's account in `kubernetes/dra`, beside a real API server that checks them.

#[path = "../support/cluster.rs"]
mod cluster;
mod servers;
mod shipped;

use cluster::support;
use cluster::{create, slice_of, until};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use servers::Servers;
use testkit::prelude::*;

/// A verb on a resource.
type Right = (String, String);

/// The audit log tells the requests of the account. The driver makes each that the ClusterRole allows, and no other.
#[tokio::test]
async fn driver_uses_exactly_its_rights() {
    let Some(mut servers) = Servers::start().await else {
        return;
    };
    servers.kubectl(&["apply", "-k", &kustomization()]);
    let a = kubeconfig_of_node(&servers, "a").await;
    let b = kubeconfig_of_node(&servers, "b").await;
    let admin = servers.cluster.all::<ResourceSlice>();
    servers.cluster.start_driver_of("a", &a);
    until("the ResourceSlices are published", async || {
        names(&admin).await.len() > 1
    })
    .await;
    serves_a_claim(&servers, &admin).await;
    restores_the_slices(&admin).await;
    // These follow the answer to the kubelet.
    until("the claim has a status, and the pod an event", async || {
        let used = requests(&servers);
        let has = |verb: &str, what: &str| used.iter().any(|((v, w), _)| v == verb && w == what);
        has("patch", "resourceclaims/status") && has("create", "events")
    })
    .await;
    let status = "jsonpath={.status.devices[0].device}";
    let get = ["get", "resourceclaim", "c", "-o", status];
    until("the status has the device", async || {
        !servers.kubectl(&get).is_empty()
    })
    .await;

    let asked = requests(&servers);
    let refused: Vec<_> = asked.iter().filter(|(_, code)| *code >= 400).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let used: BTreeSet<Right> = asked.into_iter().map(|(right, _)| right).collect();
    assert_eq!(used, granted(&servers));

    writes_no_other_nodes_slices(&servers, &admin, &b).await;
}

/// The kubelet's call for a claim of a bound pod.
async fn serves_a_claim(servers: &Servers, admin: &Api<ResourceSlice>) {
    let slices = admin.list(&ListParams::default()).await.unwrap().items;
    let devices = slices.into_iter().filter_map(|slice| slice.spec.devices);
    let mut devices = devices.flatten().map(|device| device.name);
    let device = devices.find(|name| name.contains("-mig-1g-10gb-"));
    let device = device.unwrap();
    // The place is taken, so the promise moves, and the pod gets an event.
    let start = device.rsplit('-').nth(1).unwrap();
    let cluster = &servers.cluster;
    let place = ["--gpu", "0", "--profile", "1g.10gb", "--start", start];
    cluster.sim("create", &place);
    servers.kubectl(&["create", "serviceaccount", "default"]);
    let device = json!({
        "driver": "gpu.runmig.dev", "pool": "runmig.a", "device": device, "request": "slice",
    });
    // As the scheduler writes it: the right to the status holds for this node.
    let selector = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["a"]},
    ]}]});
    let status = json!({"allocation": {"nodeSelector": selector}});
    let claim = cluster.claim_of("c", json!([device]), status).await;
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "a", "containers": [{"name": "c", "image": "none"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
        },
    });
    let pod = create(&cluster.here::<Pod>(), pod).await;
    let uid = pod.metadata.uid.unwrap();
    cluster.reserve("c", &[("p", &uid)]).await;
    cluster.prepared(&claim).await;
}

/// The driver removes a ResourceSlice that is none of its own, and writes one back that another program has changed.
async fn restores_the_slices(admin: &Api<ResourceSlice>) {
    let before = names(admin).await;
    let write = PostParams::default();
    let foreign = slice("runmig.a.devices-999", "a", "runmig.a", "gpu.runmig.dev");
    admin.create(&write, &foreign).await.unwrap();
    let (name, mut changed) = {
        let all = admin.list(&ListParams::default()).await.unwrap();
        let has_devices = |slice: &&ResourceSlice| slice.spec.devices.iter().flatten().count() > 0;
        let slice = all.items.iter().find(has_devices).unwrap().clone();
        (slice.metadata.name.clone().unwrap(), slice)
    };
    changed.spec.devices = None;
    admin.replace(&name, &write, &changed).await.unwrap();
    until("the ResourceSlices are as before", async || {
        let slice = admin.get(&name).await.unwrap();
        slice.spec.devices.is_some() && names(admin).await == before
    })
    .await;
}

/// The policy refuses each write of node B's driver outside of its own ResourceSlices.
async fn writes_no_other_nodes_slices(
    servers: &Servers,
    admin: &Api<ResourceSlice>,
    kubeconfig: &Path,
) {
    let b: Api<ResourceSlice> = Api::all(support::client(kubeconfig).await);
    let write = PostParams::default();
    let driver = "gpu.runmig.dev";
    until("the policy is in force", async || {
        let probe = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let theirs = slice("runmig.a.devices-008", "a", "runmig.a", driver);
        b.create(&probe, &theirs).await.is_err()
    })
    .await;
    for (name, node, pool, driver, why) in testkit::rows! {
        "runmig.a.devices-009", "a", "runmig.a", driver => "the ResourceSlice is not of node b";
        "runmig.b.devices-000", "a", "runmig.b", driver => "the ResourceSlice is not of node b";
        "runmig.b.devices-000", "b", "runmig.a", driver => "the pool of node b is runmig.b";
        "runmig.b.devices-000", "b", "runmig.b", "gpu.nvidia.com" =>
            "the ResourceSlice is not of driver gpu.runmig.dev";
        "runmig.a.devices-009", "b", "runmig.b", driver => "the ResourceSlices of node b begin with runmig.b";
        "runmig.b.c.devices-000", "b", "runmig.b", driver => "the ResourceSlices of node b begin with runmig.b";
    } {
        let slice = slice(name, node, pool, driver);
        let refused = b.create(&write, &slice).await.unwrap_err().to_string();
        assert!(refused.contains(why), "{name} {node} {pool}: {refused}");
    }
    let own = slice("runmig.b.devices-000", "b", "runmig.b", driver);
    b.create(&write, &own).await.unwrap();

    let theirs = admin.list(&ListParams::default()).await.unwrap().items;
    let is_of_a = |slice: &&ResourceSlice| slice.spec.node_name.as_deref() == Some("a");
    let theirs = theirs.iter().find(is_of_a).unwrap().clone();
    let name = theirs.metadata.name.clone().unwrap();
    let why = "the ResourceSlice is not of node b";
    let refused = b.replace(&name, &write, &theirs).await.unwrap_err();
    assert!(refused.to_string().contains(why), "{refused}");
    let refused = b.delete(&name, &DeleteParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains(why), "{refused}");
    let delete = DeleteParams::default();
    b.delete("runmig.b.devices-000", &delete).await.unwrap();

    let token = servers.kubectl(&["create", "token", "runmig-dra", "--namespace=runmig"]);
    let no_pod = servers.kubeconfig("no-pod", token.trim());
    let no_pod: Api<ResourceSlice> = Api::all(support::client(&no_pod).await);
    let refused = no_pod.create(&write, &own).await.unwrap_err().to_string();
    let why = "the token of runmig-dra names no node";
    assert!(refused.contains(why), "{refused}");
}

fn kustomization() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../kubernetes/dra").to_owned()
}

/// Makes a node and a driver's pod on it. Returns a kubeconfig with the token that the kubelet gives the pod.
async fn kubeconfig_of_node(servers: &Servers, node: &str) -> PathBuf {
    let cluster = &servers.cluster;
    create(&cluster.all::<Node>(), json!({"metadata": {"name": node}})).await;
    let name = format!("driver-{node}");
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node, "serviceAccountName": "runmig-dra",
            "containers": [{"name": "c", "image": "none"}],
        },
    });
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "runmig");
    create(&pods, pod).await;
    let bound = format!("--bound-object-name={name}");
    let create = ["create", "token", "runmig-dra", "--namespace=runmig"];
    let token = servers.kubectl(&[&create[..], &["--bound-object-kind=Pod", &bound]].concat());
    servers.kubeconfig(node, token.trim())
}

/// The requests of the account in the audit log, each with its status.
fn requests(servers: &Servers) -> BTreeSet<(Right, u64)> {
    let log = servers.audit_log();
    let request = |line: &str| {
        let event: Value = serde_json::from_str(line).ok()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        // Every account may ask for the version, which is no resource.
        let object = event.get("objectRef")?;
        let resource = match object["subresource"].as_str() {
            Some(part) => format!("{}/{part}", text(&object["resource"])),
            None => text(&object["resource"]),
        };
        let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
        Some(((text(&event["verb"]), resource), code))
    };
    log.lines().filter_map(request).collect()
}

/// The rights in the ClusterRole of the account.
fn granted(servers: &Servers) -> BTreeSet<Right> {
    let role = servers.kubectl(&["get", "clusterrole", "runmig-dra", "-o", "json"]);
    let role: Value = serde_json::from_str(&role).unwrap();
    let texts = |of: &Value| serde_json::from_value::<Vec<String>>(of.clone()).unwrap();
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for resource in texts(&rule["resources"]) {
            let verbs = texts(&rule["verbs"]).into_iter();
            // Part of a right to the status, which no request names.
            let verbs = verbs.filter(|verb| !verb.starts_with("associated-node:"));
            rights.extend(verbs.map(|verb| (verb, resource.clone())));
        }
    }
    rights
}

async fn names(slices: &Api<ResourceSlice>) -> BTreeSet<String> {
    let all = slices.list(&ListParams::default()).await.unwrap().items;
    all.into_iter().filter_map(|s| s.metadata.name).collect()
}

fn slice(name: &str, node: &str, pool: &str, driver: &str) -> ResourceSlice {
    let of_node = json!({"nodeName": node, "devices": []});
    serde_json::from_value(slice_of(name, driver, pool, &of_node)).unwrap()
}
