//! The steps of a user of Kubernetes, and the fate of the slices.

use crate::node::{Node, eventually, plain_spec, pod_spec, stays};
use testkit::bundle::NODES;
use testkit::cuda::{HAS_SOCKET, SOCKETS};
use testkit::prelude::*;

const FULL: &str = "7g.80gb";

fn restarts(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["restartCount"]
}

/// It sees the slice that the ledger says it has, and a pod of no RuntimeClass sees none.
pub fn a_pod_by_annotation(node: &Node) {
    node.pod("asks", json!({"runmig.dev/slice": "2g.20gb"}), SHOW);
    node.pod_of("plain", json!({}), plain_spec(SHOW));
    node.is_ready("asks");
    node.is_ready("plain");

    let instance = node.machine.the_instance();
    assert_eq!(instance.profile, "2g.20gb");
    let said = node.logs("asks");
    assert_eq!(visible(&said), Some(instance.uuid.as_str()), "{said}");
    assert_eq!(nodes(&said), node.machine.nodes_of(&instance), "{said}");
    let inside = node.kubectl(&["exec", "asks", "--", "sh", "-c", SHOW]).ok();
    assert_eq!(nodes(&inside.stdout), node.machine.nodes_of(&instance));
    let said = node.logs("plain");
    let seen = (visible(&said), nodes(&said).len());
    assert_eq!(seen, (Some(""), 0), "{said}");

    node.passed(&["a slice by annotation", "exec", "logs"]);

    let lease = &node.leases()[0];
    assert_eq!(lease["migUUID"], instance.uuid.as_str());
    assert_eq!(lease["state"], "ready");
    node.run("migctl", &["list"]).ok().says("default/asks/c");
    node.delete("asks");
    node.delete("plain");
}

/// A pod has a daemon of its own, which ends with it.
fn a_share_at_mps(node: &Node) {
    node.pod("share", json!({"runmig.dev/share": "8Gi"}), SOCKETS);
    node.is_ready("share");
    assert!(node.logs("share").contains(HAS_SOCKET));
    let inside = node.kubectl(&["exec", "share", "--", "sh", "-c", SOCKETS]);
    assert_eq!(inside.ok().stdout, HAS_SOCKET);
    let lease = &node.leases()[0];
    assert_eq!(lease["enforcement"], "mps", "{lease}");
    assert_eq!(lease["daemon"]["alive"], true, "{lease}");
    let program = node.machine.dir().join("usr/bin/nvidia-cuda-mps-control");
    let daemon_runs = || !with_argument(program.to_str().unwrap()).is_empty();
    assert!(daemon_runs());
    node.delete("share");
    node.has_leases("the share is released", |leases| leases.is_empty());
    assert!(!daemon_runs());
    node.passed(&["a share at mps"]);
}

/// Pods share a GPU that is not in MIG mode, and another pod gets it whole.
pub fn a_gpu_without_mig(node: &Node) {
    node.machine.sim("mig", &["--gpu", "0", "off"]);
    a_share_at_mps(node);
    // The level none follows where there is no control program.
    let program = node.machine.dir().join("usr/bin/nvidia-cuda-mps-control");
    std::fs::rename(&program, program.with_extension("away")).unwrap();
    let gpu = node.machine.gpu_uuid(0);
    let sees_gpu = |pod: &str| {
        node.is_ready(pod);
        let said = node.logs(pod);
        assert_eq!(visible(&said), Some(gpu.as_str()), "{said}");
        assert!(nodes(&said).contains_key("nvidia0"), "{said}");
    };
    for (pod, size) in [("first", "8Gi"), ("second", "1/4")] {
        node.pod(pod, json!({"runmig.dev/share": size}), SHOW);
        sees_gpu(pod);
    }
    let leases = node.leases();
    let all = |key: &str| -> Vec<Value> { leases.iter().map(|l| l[key].clone()).collect() };
    assert_eq!(all("kind"), ["share", "share"]);
    assert_eq!(all("enforcement"), ["none", "none"]);
    for pod in ["first", "second"] {
        node.delete(pod);
    }
    node.passed(&["a share at none"]);
    node.pod("whole", json!({"gpu.runmig.dev/c": "1"}), SHOW);
    sees_gpu("whole");
    assert_eq!(node.leases()[0]["kind"], "gpu");
    node.delete("whole");
    node.passed(&["a whole GPU"]);
    eventually("the GPU is free", || node.leases().is_empty());
    std::fs::rename(program.with_extension("away"), &program).unwrap();
    node.machine.sim("mig", &["--gpu", "0", "on"]);
}

/// As docs/engines.md has it. Its image is another here, whose nvidia-smi is a look at /dev.
pub fn the_pod_that_is_shipped(node: &Node) {
    // docs/engines.md: kubectl apply -f kubernetes/runtimeclass.yaml
    // docs/engines.md: kubectl apply -f kubernetes/pod.yaml
    for file in ["kubernetes/runtimeclass.yaml", "kubernetes/pod.yaml"] {
        node.kubectl(&["apply", "-f", file]).ok();
    }
    node.is("jsonpath={.status.phase}=Succeeded", "pod/slices");
    // docs/engines.md: kubectl logs slices -c infer
    let said = |container| {
        let logs = node.kubectl(&["logs", "slices", "-c", container]);
        logs.ok().stdout
    };
    let (infer, train) = (said("infer"), said("train"));
    for said in [&infer, &train] {
        assert_eq!(nodes(said).len(), NODES, "{said}");
        assert!(visible(said).unwrap().starts_with("MIG-"), "{said}");
    }
    assert_eq!((said("log").as_str(), nodes(&said("log")).len()), ("", 0));
    assert_ne!(visible(&infer), visible(&train));
    node.delete("slices");
    let two = "a pod of two with different slices";
    node.passed(&[two, "none", "per-container key"]);
}

/// As docs/named-runtimes.md has it: each container of a pod of this class has a slice, an init container until it ends.
pub fn class_by_size(node: &Node) {
    let runtime = node.runtime();
    let named = ["configure", runtime, "--name", "1g"];
    let asking = [&named[..], &["--request", "slice=1g.10gb"]].concat();
    node.run("migctl", &asking).ok();
    node.script("restart", &[runtime]);
    let class = ["apply", "-f", "kubernetes/runtimeclass-1g.yaml"];
    node.kubectl(&class).ok();
    let mut spec = pod_spec(SHOW, "Always");
    spec["runtimeClassName"] = json!("runmig-1g");
    let template = spec["containers"][0].clone();
    let container = |name: &str, script: &str| {
        let mut container = template.clone();
        container["name"] = json!(name);
        container["command"][2] = json!(script);
        container
    };
    spec["initContainers"] = json!([container("first", SHOW)]);
    let containers = ["one", "two", "log"].map(|name| container(name, &stays(SHOW)));
    spec["containers"] = json!(containers);
    node.pod_of("sized", json!({"slice.runmig.dev/log": "none"}), spec);
    node.is_ready("sized");
    let said = |container: &str| {
        let said = node.kubectl(&["logs", "sized", "-c", container]);
        said.ok().stdout
    };
    assert_eq!(nodes(&said("first")).len(), NODES);
    let ended = "the init container's slice is released";
    node.has_leases(ended, |leases| leases.len() == 2);
    for instance in node.machine.instances() {
        assert_eq!(instance.profile, "1g.10gb");
        let mut theirs = ["one", "two"].iter().map(|name| said(name));
        let its = theirs.find(|said| visible(said) == Some(instance.uuid.as_str()));
        assert_eq!(nodes(&its.unwrap()), node.machine.nodes_of(&instance));
    }
    assert_eq!(nodes(&said("log")).len(), 0);
    node.delete("sized");
    node.nothing_is_left();
    let remove = [&named[..], &["--remove"]].concat();
    node.run("migctl", &remove).ok();
    node.script("restart", &[runtime]);
}

/// Its pod stays, and its slice is the next one's.
pub fn a_job_that_ends(node: &Node) {
    let job = |name: &str| {
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": {
                "metadata": {"annotations": {"runmig.dev/slice": FULL}},
                "spec": pod_spec(SHOW, "Never"),
            }},
        })
    };
    for name in ["first", "second"] {
        node.apply(&job(name));
        let name = format!("job/{name}");
        node.is("condition=Complete", &name);
        let said = node.logs(&name);
        assert!(visible(&said).unwrap().starts_with("MIG-"), "{said}");
    }
    let pods = node.get(&["pods"]);
    assert_eq!(pods["items"].as_array().unwrap().len(), 2, "{pods}");
    let all = ["delete", "job", "first", "second", "--cascade=foreground"];
    node.kubectl(&all).ok();
    node.passed(&["a job that ends by itself"]);
}

/// The pod says why, the kubelet tries again, and when there is room it runs. One that is never to be
/// restarted has failed for good with containerd, which calls the runtime when it starts a container;
/// with CRI-O, which does when it creates one, nothing was started yet.
pub fn no_room_then_room(node: &Node) {
    node.sleeper("holder", FULL);
    node.is_ready("holder");
    node.sleeper("late", "2g.20gb");
    let small = json!({"runmig.dev/slice": "1g.10gb"});
    node.pod_of("once", small, pod_spec(SHOW, "Never"));
    eventually("the pod says why it does not run", || {
        let said = node.describe("late");
        said.contains("cannot allocate 2g.20gb: ") && said.contains("hint: ")
    });
    node.passed(&["no room: the user reads why"]);
    for pod in ["late", "once"] {
        let failed = |wanted: u64| node.failures(pod) >= wanted;
        eventually("it has failed", || failed(1));
        if pod == "late" || node.engine == "cri-o" {
            eventually("the kubelet has tried again", || failed(2));
        }
    }
    node.delete("holder");
    let (phase, why) = match node.engine {
        "cri-o" => ("Succeeded", "Completed"),
        _ => ("Failed", "StartError"),
    };
    node.is(&format!("jsonpath={{.status.phase}}={phase}"), "pod/once");
    let once = node.get(&["pod", "once"]);
    let end = &once["status"]["containerStatuses"][0]["state"]["terminated"]["reason"];
    assert_eq!(end, why);
    eventually("it runs", || {
        node.get(&["pod", "late"])["status"]["containerStatuses"][0]["ready"] == true
    });
    let made = node.machine.instances();
    assert!(made.iter().any(|i| i.profile == "2g.20gb"), "{made:?}");
    node.delete("late");
    node.delete("once");
}

/// With an annotation the create itself waits, and no attempt fails.
pub fn a_pod_that_waits(node: &Node) {
    waiting(node, "100s");
    node.delete("holder");
    node.is_ready("waits");
    assert_eq!(restarts(&node.get(&["pod", "waits"])), &json!(0));
    let said = node.describe("waits");
    assert!(!said.contains("cannot allocate"), "{said}");
    node.delete("waits");
}

/// A pod that has all, and one whose create waits for room.
fn waiting(node: &Node, how_long: &str) {
    node.sleeper("holder", FULL);
    node.is_ready("holder");
    let annotations = json!({"runmig.dev/slice": "1g.10gb", "runmig.dev/wait": how_long});
    node.pod("waits", annotations, "true");
    eventually("its create waits", || node.has_a_queue());
}

/// The kubelet goes on with a pod when the engine has answered, and not before: it is deleted when
/// its wait is over.
pub fn deleted_while_it_waits(node: &Node) {
    waiting(node, "15s");
    node.delete("waits");
    assert!(!node.is_creating());
    assert_eq!(node.leases().len(), 1);
    node.delete("holder");
}

/// It gets its slice all the same, and releases it at once.
pub fn deleted_before_room_comes(node: &Node) {
    waiting(node, "100s");
    let only_ask = ["delete", "pod", "waits", "--wait=false"];
    node.kubectl(&only_ask).ok();
    assert!(node.is_creating());
    node.delete("holder");
    node.delete("waits");
    assert!(!node.is_creating());
}

/// Its containers go on, with their slices; it knows them when it is back.
pub fn survives_restarted_engine(node: &Node) {
    node.sleeper("stays", "1g.10gb");
    node.is_ready("stays");
    let before = (node.leases(), node.machine.the_instance());
    node.script("restart", &[node.runtime()]);
    let its = node.machine.nodes_of(&before.1);
    eventually("it answers again", || {
        let inside = node.kubectl(&["exec", "stays", "--", "sh", "-c", SHOW]);
        nodes(&inside.stdout) == its
    });
    assert_eq!((node.leases(), node.machine.the_instance()), before);
    assert_eq!(restarts(&node.get(&["pod", "stays"])), &json!(0));
    node.delete("stays");
    node.passed(&["the engine is restarted", "remove"]);
}

/// Processes and instances are gone; the kubelet starts its pods again, and they get slices.
pub fn the_node_is_rebooted(node: &Node) {
    let pods = [("one", "3g.40gb"), ("two", "1g.10gb")];
    for (name, slice) in pods {
        node.pod(name, json!({"runmig.dev/slice": slice}), SHOW);
    }
    for (name, _) in pods {
        node.is_ready(name);
    }
    let before = node.leases();
    node.script("reboot", &[]);
    for (name, _) in pods {
        eventually("it runs again", || {
            let pod = node.get(&["pod", name]);
            restarts(&pod) == &json!(1) && pod["status"]["containerStatuses"][0]["ready"] == true
        });
    }
    let (leases, instances) = (node.leases(), node.machine.instances());
    assert_eq!((leases.len(), instances.len()), (2, 2), "{leases:?}");
    for (name, slice) in pods {
        let said = node.logs(name);
        let its = instances.iter().find(|i| i.profile == slice).unwrap();
        assert_eq!(visible(&said), Some(its.uuid.as_str()), "{said}");
        assert_eq!(nodes(&said), node.machine.nodes_of(its), "{said}");
    }
    assert!(before.iter().all(|old| !leases.contains(old)), "{before:?}");
    node.delete("one");
    node.delete("two");
}
