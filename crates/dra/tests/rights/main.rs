//! The rights of the driver's account in `kubernetes/dra`, beside a real API server that checks them.

mod servers;
mod shipped;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use runmig_dra::kubelet::messages::{Claim, PrepareRequest};
use runmig_dra::kubelet::services::d_r_a_plugin_client::DRAPluginClient;
use servers::{Servers, until};
use testkit::prelude::*;
use tonic::transport::Endpoint;

/// A verb on a resource.
type Right = (String, String);

/// The audit log tells the requests of the account. The driver makes each that the ClusterRole allows, and no other.
#[tokio::test]
async fn driver_uses_exactly_its_rights() {
    let Some(mut servers) = Servers::start().await else {
        return;
    };
    servers.kubectl(&["apply", "-k", &kustomization()]);
    let tokens = ["a", "b"].map(|node| token_of_node(&servers, node));
    let [a, b] =
        [("a", &tokens[0]), ("b", &tokens[1])].map(|(node, token)| servers.kubeconfig(node, token));
    let admin = servers.slices(&servers.at("kubeconfig")).await;
    servers.start_driver("a", &a);
    until("the ResourceSlices are published", async || {
        names(&admin).await.len() > 1
    })
    .await;
    serves_a_claim(&servers, &admin).await;
    restores_the_slices(&admin).await;
    // These follow the answer to the kubelet.
    until("the claim has a status, and the pod an event", async || {
        let used: BTreeSet<Right> = { requests(&servers).into_iter() }
            .map(|(right, _)| right)
            .collect();
        let late = [("patch", "resourceclaims/status"), ("create", "events")];
        late.iter()
            .all(|(verb, what)| used.contains(&((*verb).to_owned(), (*what).to_owned())))
    })
    .await;
    let status = "jsonpath={.status.devices[0].device}";
    until("the status has the device", async || {
        !servers
            .kubectl(&["get", "resourceclaim", "c", "-o", status])
            .is_empty()
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
    let slices = admin.list(&ListParams::default()).await.unwrap();
    let devices = slices
        .items
        .into_iter()
        .filter_map(|slice| slice.spec.devices);
    let mut devices = devices.flatten().map(|device| device.name);
    let device = devices.find(|name| name.contains("-mig-1g-10gb-"));
    let device = device.unwrap();
    // The place is taken, so the promise moves, and the pod gets an event.
    let start = device.rsplit('-').nth(1).unwrap();
    let machine = servers.at("machine");
    let machine = machine.to_str().unwrap();
    let place = ["--profile", "1g.10gb", "--start", start];
    servers::sim(&[&["create", machine, "--gpu", "0"], &place[..]].concat());
    servers.kubectl(&["create", "serviceaccount", "default"]);
    servers.apply(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [
            {"name": "slice", "exactly": {"deviceClassName": "mig.runmig.dev"}},
        ]}},
    }));
    servers.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {
            "nodeName": "a", "containers": [{"name": "c", "image": "none"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
        },
    }));
    let uid = |what: &str| servers.kubectl(&["get", what, "-o", "jsonpath={.metadata.uid}"]);
    let result = json!({
        "driver": "gpu.runmig.dev", "pool": "runmig.a", "device": device, "request": "slice",
    });
    let status = json!({"status": {
        "allocation": {
            "devices": {"results": [result]},
            // As the scheduler writes it: the right to the status holds for this node.
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["a"]},
            ]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": uid("pod/p")}],
    }});
    let patch = ["patch", "resourceclaim", "c", "--subresource=status"];
    servers.kubectl(&[&patch[..], &["--type=merge", "-p", &status.to_string()]].concat());
    let claim = Claim {
        namespace: "default".to_owned(),
        uid: uid("resourceclaim/c"),
        name: "c".to_owned(),
    };
    let socket = servers.at("kubelet/plugins/gpu.runmig.dev/dra.sock");
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    let mut plugin = DRAPluginClient::new(endpoint.connect().await.unwrap());
    let claims = vec![claim.clone()];
    let answer = plugin.node_prepare_resources(PrepareRequest { claims });
    let answers = answer.await.unwrap().into_inner().claims;
    assert_eq!(answers[&claim.uid].error, "");
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
    let b = servers.slices(kubeconfig).await;
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
    b.delete("runmig.b.devices-000", &DeleteParams::default())
        .await
        .unwrap();

    let token = servers.kubectl(&["create", "token", "runmig-dra", "--namespace=runmig"]);
    let no_pod = servers.kubeconfig("no-pod", token.trim());
    let no_pod = servers.slices(&no_pod).await;
    let refused = no_pod.create(&write, &own).await.unwrap_err().to_string();
    let why = "the token of runmig-dra names no node";
    assert!(refused.contains(why), "{refused}");
}

fn kustomization() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../kubernetes/dra").to_owned()
}

/// Makes a node and a driver's pod on it. Returns the token that the kubelet gives the pod.
fn token_of_node(servers: &Servers, node: &str) -> String {
    servers.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}));
    let pod = format!("driver-{node}");
    servers.apply(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod, "namespace": "runmig"},
        "spec": {
            "nodeName": node, "serviceAccountName": "runmig-dra",
            "containers": [{"name": "c", "image": "none"}],
        },
    }));
    let token = servers.kubectl(&[
        "create",
        "token",
        "runmig-dra",
        "--namespace=runmig",
        "--bound-object-kind=Pod",
        &format!("--bound-object-name={pod}"),
    ]);
    token.trim().to_owned()
}

/// The requests of the account in the audit log, each with its status.
fn requests(servers: &Servers) -> BTreeSet<(Right, u64)> {
    let log = fs::read_to_string(servers.at("audit.log")).unwrap();
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
    let texts = |of: &Value| -> Vec<String> {
        let texts = of.as_array().unwrap().iter();
        texts
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    };
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
    let all = slices.list(&ListParams::default()).await.unwrap();
    all.items
        .into_iter()
        .filter_map(|s| s.metadata.name)
        .collect()
}

fn slice(name: &str, node: &str, pool: &str, driver: &str) -> ResourceSlice {
    let slice = json!({
        "metadata": {"name": name},
        "spec": {
            "driver": driver, "nodeName": node,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [],
        },
    });
    serde_json::from_value(slice).unwrap()
}
