//! Pods with ResourceClaims, on the plain low-level runtime: the DRA driver makes their slices.

use crate::node::{Node, eventually, plain_spec};
use testkit::bundle::NODES;
use testkit::prelude::*;

const PROFILE: &str = "1g.10gb";
const TEMPLATE: &str = "small-slice";

/// As it is shipped: a pod whose claim comes from a template, and a pod with an extended resource.
pub fn the_claims_that_are_shipped(node: &Node) {
    for (file, pod) in [("template", "train"), ("pod", "infer")] {
        let file = format!("kubernetes/dra/examples/{file}.yaml");
        node.kubectl(&["apply", "-f", &file]).ok();
        node.is("jsonpath={.status.phase}=Succeeded", &format!("pod/{pod}"));
        let said = node.logs(pod);
        assert_eq!(nodes(&said).len(), NODES, "{said}");
        assert_eq!(visible(&said), Some("void"), "{said}");
        node.delete(pod);
        is_over(node);
    }
    let template = format!("resourceclaimtemplate/{TEMPLATE}");
    node.kubectl(&["delete", &template]).ok();
}

/// The pod has its slice and nothing else, also after a restart of the kubelet and of the driver. The slice goes with
/// the pod.
/// Failure: the kubelet or the driver restarts under a pod with a claim
pub fn a_pod_by_claim(node: &Node) {
    template(node);
    let script = format!("{SHOW}; echo UUID=$RUNMIG_SLICE_SLICE");
    pod(node, "claims", &script);
    node.is_ready("claims");
    let instance = node.machine.the_instance();
    assert_eq!(instance.profile, PROFILE);
    let said = node.logs("claims");
    assert_eq!(nodes(&said), node.machine.nodes_of(&instance), "{said}");
    assert_eq!(visible(&said), Some("void"), "{said}");
    has(&said, &format!("UUID={}\n", instance.uuid));

    let leases = node.leases();
    // The claim has a lease, and the container another on the same slice.
    let (of_claim, of_container): (Vec<&Value>, Vec<&Value>) =
        leases.iter().partition(|lease| lease["claim"].is_object());
    assert_eq!((of_claim.len(), of_container.len()), (1, 1), "{leases:#?}");
    for lease in &leases {
        assert_eq!(lease["state"], "ready");
        assert_eq!(lease["migUUID"], instance.uuid.as_str());
        assert_eq!(lease["pod"], "claims");
    }
    assert_eq!(of_container[0]["containerName"], "c");
    let claims = node.get(&["resourceclaims"]);
    let claim = &claims["items"][0];
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    let device = result["device"].as_str().unwrap();
    assert_eq!(result["pool"], "runmig.node", "{claim}");
    ends_with(device, &format!("-mig-1g-10gb-{}-1", instance.start));
    let name = claim["metadata"]["name"].as_str().unwrap();
    let list = node.run("migctl", &["list", "-o", "wide"]).ok().stdout;
    has(&list, &format!("claim default/{name}"));
    let uid = claim["metadata"]["uid"].as_str().unwrap();
    let file = format!("gpu.runmig.dev-{uid}.json");
    assert_eq!(cdi_files(node), [file.as_str()]);

    for part in ["kubelet", "runmig-dra"] {
        let slices = resource_slices(node);
        node.script("restart", &[part]);
        let its = node.machine.nodes_of(&instance);
        eventually("the pod answers", || {
            let inside = node.kubectl(&["exec", "claims", "--", "sh", "-c", SHOW]);
            nodes(&inside.stdout) == its
        });
        // The kubelet removes them at its start.
        eventually("the ResourceSlices are back", || {
            resource_slices(node) == slices
        });
        assert_eq!(
            (node.leases(), node.machine.the_instance()),
            (leases.clone(), instance.clone())
        );
        assert_eq!(cdi_files(node), [file.as_str()]);
    }
    let now = node.get(&["pod", "claims"]);
    assert_eq!(now["status"]["containerStatuses"][0]["restartCount"], 0);
    node.delete("claims");
    is_over(node);
}

/// A reboot takes the slice, its records and the CDI file. The pod runs again on a new slice of the same device.
/// Failure: the node reboots under a pod with a claim
pub fn a_reboot_under_a_claim(node: &Node) {
    template(node);
    pod(
        node,
        "claims",
        &format!("{SHOW}; echo UUID=$RUNMIG_SLICE_SLICE"),
    );
    node.is_ready("claims");
    let (before, leases) = (node.machine.the_instance(), node.leases());
    let allocation = || node.get(&["resourceclaims"])["items"][0]["status"]["allocation"].clone();
    let allocated = allocation();
    node.script("reboot", &[]);
    eventually("the pod runs again", || {
        let status = &node.get(&["pod", "claims"])["status"]["containerStatuses"][0];
        status["restartCount"] == 1 && status["ready"] == true
    });
    let instance = node.machine.the_instance();
    assert_eq!(allocation(), allocated);
    assert_eq!(
        (&instance.profile, instance.start, instance.size),
        (&before.profile, before.start, before.size)
    );
    let said = node.logs("claims");
    assert_eq!(nodes(&said), node.machine.nodes_of(&instance), "{said}");
    let uuid = format!("UUID={}\n", instance.uuid);
    has(&said, &uuid);
    let now = node.leases();
    assert_eq!(now.len(), leases.len(), "{now:#?}");
    assert!(leases.iter().all(|old| !now.contains(old)), "{now:#?}");
    let of_claim = now.iter().find(|lease| lease["claim"].is_object()).unwrap();
    let result = &allocated["devices"]["results"][0];
    assert_eq!(of_claim["claim"]["device"], result["device"]);
    assert_eq!(of_claim["migUUID"], instance.uuid.as_str());
    assert_eq!(cdi_files(node).len(), 1);
    node.delete("claims");
    is_over(node);
}

/// The scheduler sees the room that a local slice takes, and its end: a pod that finds no place is pending until then.
/// Failure: no place is free for a claim
pub fn counters_follow_local_slices(node: &Node) {
    template(node);
    node.sleeper("local", "7g.80gb");
    node.is_ready("local");
    let is_full = || {
        let set = "{.items[*].spec.sharedCounters[0].counters.memory.value}";
        node.in_resource_slices(set) == "0"
    };
    eventually("the counters are lower", is_full);
    pod(node, "late", "true");
    node.is("condition=PodScheduled=False", "pod/late");
    has(&node.describe("late"), "cannot allocate all claims");
    node.delete("local");
    node.has_leases("the local slice is gone", |leases| {
        leases.iter().all(|lease| lease["profile"] != "7g.80gb")
    });
    node.is_ready("late");
    node.delete("late");
    is_over(node);
}

/// A cordon keeps pods from the GPU and leaves those on it; a drain has Kubernetes evict them. A pod that came meanwhile
/// runs after the end of the cordon.
pub fn a_drained_gpu(node: &Node) {
    template(node);
    let config = node.root().join("etc/runmig/config.toml");
    let before = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{before}\n[kubernetes]\nevict = true\n")).unwrap();
    node.script("restart", &["runmig-dra"]);
    let migctl = |arguments: &[&str]| node.run("migctl", arguments).ok().stdout;
    let effects = || {
        let devices = "{range .items[*].spec.devices[*]}";
        let taint = "{.taints[?(@.key=='runmig.dev/cordoned')].effect}";
        node.in_resource_slices(&format!("{devices}{taint} {{end}}"))
    };
    pod(node, "stays", "true");
    node.is_ready("stays");

    migctl(&["cordon", "0", "--reason", "its fan"]);
    eventually("a taint", || effects().contains("NoSchedule"));
    pod(node, "late", "true");
    node.is("condition=PodScheduled=False", "pod/late");
    node.is_ready("stays");

    has(&migctl(&["drain", "0"]), "claim default/stays-gpu-");
    node.is("delete", "pod/stays");
    has(&migctl(&["drain", "0", "--wait"]), "GPU 0 is free");

    migctl(&["uncordon", "0"]);
    eventually("no taint", || effects().trim().is_empty());
    node.is_ready("late");
    node.delete("late");
    is_over(node);
    fs::write(&config, before).unwrap();
    node.script("restart", &["runmig-dra"]);
}

pub fn template(node: &Node) {
    node.apply(&json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE},
        "spec": {"spec": {"devices": {"requests": [
            {"name": "slice", "exactly": {"deviceClassName": format!("mig-{PROFILE}")}},
        ]}}},
    }));
}

/// A pod whose one container, `c`, has a claim from the template, and no RuntimeClass.
pub fn pod(node: &Node, name: &str, script: &str) {
    let mut spec = plain_spec(script);
    spec["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]);
    spec["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    node.pod_of(name, json!({}), spec);
}

/// Neither instances nor leases nor CDI files: Unprepare comes before the end of a pod, and ends the lease of a
/// container that CRI-O deletes late.
pub fn is_over(node: &Node) {
    assert_eq!(node.machine.instances(), []);
    assert_eq!(node.leases(), [Value::Null; 0]);
    assert_eq!(cdi_files(node), [""; 0]);
}

/// The names of the ResourceSlices, each with those of its devices. Their order changes with the room.
fn resource_slices(node: &Node) -> Vec<(String, Vec<String>)> {
    let name = |of: &Value| of.as_str().unwrap().to_owned();
    let slices = node.get(&["resourceslices"]);
    let content = |slice: &Value| {
        let devices = slice["spec"]["devices"].as_array();
        let devices = devices.into_iter().flatten();
        let mut devices: Vec<String> = devices.map(|device| name(&device["name"])).collect();
        devices.sort();
        (name(&slice["metadata"]["name"]), devices)
    };
    let slices = slices["items"].as_array().unwrap().iter();
    slices.map(content).collect()
}

/// The node's folder for CDI files.
pub fn cdi_folder(node: &Node) -> PathBuf {
    node.root().join("run/cdi")
}

fn cdi_files(node: &Node) -> Vec<String> {
    names_in(&cdi_folder(node))
}
