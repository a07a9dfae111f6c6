//! `runmig-dra check` and `show`, beside a real API server. Each case causes a finding.

#[allow(dead_code)]
#[path = "../claims/cluster.rs"]
mod cluster;
mod findings;
#[path = "../support/proxy.rs"]
mod proxy;

use cluster::support;
use cluster::{Cluster, until};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Node};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use kube::Api;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use runmig_dra::kubelet::messages::{PrepareRequest, UnprepareRequest};
use runmig_dra::publish::publish;
use runmig_dra::slices::Wanted;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::sync::watch;

/// Calls the driver with a verb. Returns its exit status and both outputs.
fn call(cluster: &Cluster, arguments: &[&str], config: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_runmig-dra"))
        .args(arguments)
        .args(["--node", "node"])
        .env("RUNMIG_CONFIG", cluster.at(config))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// A check, with one of its options replaced.
fn check(cluster: &Cluster, replaced: &[(&str, &Path)], config: &str) -> (i32, String) {
    let mut options = vec![
        ("--kubeconfig", cluster.at("kubeconfig")),
        ("--cdi-dir", cluster.at("cdi")),
        ("--claim-hook", "/bin/true".into()),
        ("--containerd-config", cluster.at("containerd.toml")),
    ];
    for (name, path) in replaced {
        let option = options.iter_mut().find(|(option, _)| option == name);
        option.unwrap().1 = path.to_path_buf();
    }
    let mut arguments = vec!["check"];
    for (name, path) in &options {
        arguments.extend([*name, path.to_str().unwrap()]);
    }
    let (status, lines, errors) = call(cluster, &arguments, config);
    (status, lines + &errors)
}

#[track_caller]
fn fails(cluster: &Cluster, replaced: &[(&str, &Path)], config: &str, words: &str) {
    let (status, lines) = check(cluster, replaced, config);
    let found = lines
        .lines()
        .any(|l| l.starts_with("fail  ") && l.contains(words));
    assert!(status == 1 && found, "no \"{words}\" in\n{lines}");
}

async fn slices(cluster: &Cluster) -> Vec<ResourceSlice> {
    let api: Api<ResourceSlice> = Api::all(cluster.client.clone());
    let ours = ListParams::default().fields("spec.driver=gpu.runmig.dev");
    api.list(&ours).await.unwrap().items
}

/// Nothing is published, and an account without rights is named.
#[tokio::test]
async fn names_gates_and_rights() {
    let gates = "--feature-gates=DRAPartitionableDevices=false,DRAExtendedResource=false,\
                 DRADeviceBindingConditions=false,DRAResourceClaimDeviceStatus=false,\
                 DRAResourceClaimGranularStatusAuthorization=false";
    let Some(cluster) = Cluster::up_with(&["--authorization-mode=RBAC", gates]).await else {
        return;
    };
    let line = "cannot publish GPUs: the feature gate DRAPartitionableDevices is off";
    until(line, async || {
        let log = fs::read_to_string(cluster.at("driver.log")).unwrap_or_default();
        log.contains(line)
    })
    .await;
    assert_eq!(slices(&cluster).await, []);
    takes_back_what_lost_its_counters(&cluster).await;
    names_gate_of_status(&cluster).await;
    for gate in ["DRAPartitionableDevices", "DRAExtendedResource"] {
        let line = format!("cannot use feature gate {gate}: it is off");
        fails(&cluster, &[], "config.toml", &line);
    }
    let (_, lines) = check(&cluster, &[], "config.toml");
    let line = "warn  cannot use feature gate DRAResourceClaimDeviceStatus: it is off";
    assert!(lines.contains(line), "{lines}");

    let file = fs::read_to_string(cluster.at("kubeconfig")).unwrap();
    let plain = cluster.at("plain");
    fs::write(&plain, file.replace("\"secret\"", "\"plain\"")).unwrap();
    let replaced = [("--kubeconfig", plain.as_path())];
    // The API server makes its own roles after its start.
    until("every account may read the version", async || {
        let (_, lines) = check(&cluster, &replaced, "config.toml");
        !lines.contains("cannot read the version")
    })
    .await;
    for right in ["list resourceslices", "get resourceclaims", "watch pods"] {
        let line = format!("cannot {right}: this account lacks the right");
        fails(&cluster, &replaced, "config.toml", &line);
    }
    let (_, lines) = check(&cluster, &replaced, "config.toml");
    for right in [
        "patch resourceclaims/status",
        "associated-node:patch resourceclaims/driver",
        "create events",
        "get nodes",
    ] {
        let line = format!("warn  cannot {right}: this account lacks the right");
        assert!(lines.contains(&line), "{lines}");
    }
}

/// An API server that had the gate at the driver's start may lose it later.
async fn takes_back_what_lost_its_counters(cluster: &Cluster) {
    let api: Api<ResourceSlice> = Api::all(cluster.client.clone());
    let consumes = json!([{"counterSet": "gpu", "counters": {"memory": {"value": "1"}}}]);
    let devices = json!([{"name": "a", "consumesCounters": consumes}]);
    let slice = json!({
        "metadata": {"name": "runmig.other-1g"},
        "spec": {
            "driver": "gpu.runmig.dev", "nodeName": "other", "devices": devices,
            "pool": {"name": "runmig.other", "generation": 1, "resourceSliceCount": 1},
        },
    });
    let its = WatchParams::default().fields("spec.nodeName=other");
    let mut changes = Box::pin(api.watch(&its, "0").await.unwrap());
    let (told, wanted) = watch::channel(Vec::new());
    told.send_replace(vec![Wanted::of(&serde_json::from_value(slice).unwrap())]);
    let (mut seen, mut is_over) = (Vec::new(), false);
    let publishing = publish(cluster.client.clone(), "other", wanted);
    let looking = until("the ResourceSlice is gone again", async || {
        match changes.next().await.unwrap().unwrap() {
            WatchEvent::Added(_) => seen.push("added"),
            WatchEvent::Deleted(_) => is_over = true,
            _ => {}
        }
        is_over
    });
    tokio::select! {
        () = publishing => panic!("it goes on"),
        done = tokio::time::timeout(Duration::from_secs(120), looking) => done.unwrap(),
    }
    assert_eq!(seen, ["added"]);
}

async fn names_gate_of_status(cluster: &Cluster) {
    let (_, shown, _) = call(cluster, &["show"], "config.toml");
    let mut words = shown.split_whitespace();
    let is_device = |word: &&str| word.starts_with("gpu-") && word.contains("-mig-1g-10gb-");
    let device = words.find(is_device).unwrap();
    let claims = vec![cluster.claim("gate", device, "runmig.node").await];
    let mut plugin = cluster.plugin().await;
    let request = PrepareRequest {
        claims: claims.clone(),
    };
    let answer = plugin.node_prepare_resources(request).await.unwrap();
    assert_eq!(answer.into_inner().claims[&claims[0].uid].error, "");
    let line = "cannot write the status of claims: the API server drops status.devices; hint: turn on the feature gate \
                DRAResourceClaimDeviceStatus";
    until(line, async || {
        let log = fs::read_to_string(cluster.at("driver.log")).unwrap();
        log.contains(line)
    })
    .await;
    let request = UnprepareRequest { claims };
    plugin.node_unprepare_resources(request).await.unwrap();
}

#[tokio::test]
async fn names_problems_of_node() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    until("the ResourceSlices are published", async || {
        slices(&cluster).await.len() > 1
    })
    .await;
    fails(
        &cluster,
        &[],
        "config.toml",
        "cannot publish GPUs: the cluster has no Node node",
    );
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "node"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let (status, lines) = check(&cluster, &[], "config.toml");
    assert!(status == 0 && !lines.contains("fail  "), "{lines}");
    assert!(
        lines.contains("ok    runmig-dra publishes for this node, process "),
        "{lines}"
    );
    shows_what_it_publishes(&cluster).await;

    let at = |name: &str| cluster.at(name);
    fs::write(at("off.toml"), "version = 3\nenable_cdi = false\n").unwrap();
    let off = at("off.toml");
    fails(
        &cluster,
        &[("--containerd-config", &off)],
        "config.toml",
        "switches CDI off",
    );
    fs::create_dir(at("open")).unwrap();
    fs::set_permissions(at("open"), Permissions::from_mode(0o777)).unwrap();
    let open = at("open");
    fails(
        &cluster,
        &[("--cdi-dir", &open)],
        "config.toml",
        "cannot use CDI folder",
    );
    fs::write(at("hook"), "").unwrap();
    fs::set_permissions(at("hook"), Permissions::from_mode(0o777)).unwrap();
    let hook = at("hook");
    fails(
        &cluster,
        &[("--claim-hook", &hook)],
        "config.toml",
        "cannot use hook",
    );
    let nowhere = at("nowhere");
    fails(
        &cluster,
        &[("--kubeconfig", &nowhere)],
        "config.toml",
        "cannot read kubeconfig",
    );
    let config = fs::read_to_string(at("config.toml")).unwrap();
    for (name, from, to, words) in [
        (
            "moved.toml",
            "/kubelet\"",
            "/elsewhere\"",
            "cannot register at the kubelet",
        ),
        (
            "none.toml",
            "[kubernetes]",
            "[policy]\nexclude_gpus = [0]\n[kubernetes]",
            "cannot publish GPUs: no GPU",
        ),
    ] {
        fs::write(at(name), config.replace(from, to)).unwrap();
        fails(&cluster, &[], name, words);
    }

    let classes: Api<DeviceClass> = Api::all(cluster.client.clone());
    let class = json!({
        "metadata": {"name": "other"},
        "spec": {"extendedResourceName": "nvidia.com/mig-1g.10gb"},
    });
    let class: DeviceClass = serde_json::from_value(class).unwrap();
    classes
        .create(&PostParams::default(), &class)
        .await
        .unwrap();
    fails(
        &cluster,
        &[],
        "config.toml",
        "DeviceClass other has the same extended resource",
    );
    withdraws_beside_other_drivers(&mut cluster).await;
}

/// The same documents as the API server has.
async fn shows_what_it_publishes(cluster: &Cluster) {
    let (status, shown, errors) = call(cluster, &["show"], "config.toml");
    assert_eq!((status, errors.as_str()), (0, ""));
    let shown: Vec<ResourceSlice> = { shown.split("\n---\n") }
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect();
    let mut published = slices(cluster).await;
    published.sort_by_key(|slice| slice.metadata.name.clone());
    let specs = |slices: &[ResourceSlice]| -> Vec<Value> {
        slices.iter().map(|slice| json!(slice.spec)).collect()
    };
    assert_eq!(specs(&shown), specs(&published));
}

/// NVIDIA's drivers come later, and go.
async fn withdraws_beside_other_drivers(cluster: &mut Cluster) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let amount = async |amount: &str| {
        let status = json!({"status": {"allocatable": {"nvidia.com/gpu": amount}}});
        let patch = PatchParams::default();
        nodes
            .patch_status("node", &patch, &Patch::Merge(status))
            .await
            .unwrap();
    };
    amount("8").await;
    let line = "NVIDIA's device plugin gives out nvidia.com/gpu on this node";
    fails(cluster, &[], "config.toml", line);
    until("the driver withdraws its devices", async || {
        slices(cluster).await.is_empty()
    })
    .await;
    let log = fs::read_to_string(cluster.at("driver.log")).unwrap();
    assert!(log.contains(line), "{log}");
    node_has_event(cluster, line).await;

    amount("0").await;
    let api: Api<ResourceSlice> = Api::all(cluster.client.clone());
    let theirs = json!({
        "metadata": {"name": "theirs"},
        "spec": {
            "driver": "gpu.nvidia.com", "nodeName": "node", "devices": [{"name": "gpu-0"}],
            "pool": {"name": "node", "generation": 1, "resourceSliceCount": 1},
        },
    });
    let theirs: ResourceSlice = serde_json::from_value(theirs).unwrap();
    api.create(&PostParams::default(), &theirs).await.unwrap();
    let line = "NVIDIA's DRA driver gpu.nvidia.com publishes the GPUs of this node";
    fails(cluster, &[], "config.toml", line);
    // Also from its start on.
    cluster.start_driver();
    until("the next process names it", async || {
        fs::read_to_string(cluster.at("driver.log"))
            .unwrap()
            .contains(line)
    })
    .await;
    assert_eq!(slices(cluster).await, []);
    node_has_event(cluster, line).await;
    api.delete("theirs", &DeleteParams::default())
        .await
        .unwrap();
    until("the driver publishes again", async || {
        slices(cluster).await.len() > 1
    })
    .await;
}

/// As `kubectl describe node` finds it.
async fn node_has_event(cluster: &Cluster, line: &str) {
    let events: Api<Event> = Api::default_namespaced(cluster.client.clone());
    let its = "involvedObject.kind=Node,involvedObject.uid=node,reason=OtherDriver";
    let of_node = ListParams::default().fields(its);
    until("the node has an event", async || {
        let events = events.list(&of_node).await.unwrap().items;
        let mut notes = events.into_iter().filter_map(|event| event.message);
        notes.any(|note| note.starts_with(line))
    })
    .await;
}
