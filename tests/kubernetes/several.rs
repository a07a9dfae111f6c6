//! Several requests, claims, containers and pods: each container sees the slices of its claims alone.

use crate::claims::{cdi_folder, is_over};
use crate::node::{Node, eventually};
use testkit::prelude::*;

const IMAGE: &str = "localhost/busybox:1";

/// A pod of the class runmig with two claims. One of them has two requests, and both have a request of the same name.
/// Failure: a container has several claims or requests, or restarts; pods share a claim
pub fn several_claims_in_a_pod(node: &Node) {
    template(node, "two", &["a", "b"]);
    template(node, "one", &["a"]);
    let sleep = container("c", &["two", "own"]);
    let mut init = container("init", &["two"]);
    init["command"] = json!(["sh", "-c", script("true")]);
    let mut side = container("side", &[]);
    side["restartPolicy"] = json!("Always");
    side["resources"] = json!({"claims": [{"name": "two", "request": "b"}]});
    let spec = json!({
        "runtimeClassName": "runmig",
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [
            {"name": "two", "resourceClaimTemplateName": "two"},
            {"name": "own", "resourceClaimTemplateName": "one"},
        ],
        "initContainers": [init, side],
        "containers": [sleep, container("plain", &[])],
    });
    node.pod_of("several", json!({}), spec);
    node.is_ready("several");
    let slices = slices(node);
    let [two_a, two_b, own] = [("two", "a"), ("two", "b"), ("own", "a")].map(|(claim, request)| {
        let its = |((name, of), _): &(&(String, String), &String)| {
            name.contains(&format!("-{claim}-")) && of == request
        };
        let found = slices.iter().find(its);
        found.unwrap_or_else(|| panic!("{slices:?}")).1.as_str()
    });
    let sees = |container: &str, expected: &[&str]| {
        let said = logs(node, "several", container);
        let expected: BTreeSet<&str> = expected.iter().copied().collect();
        let seen = visible(&said).unwrap().split(',');
        let seen: BTreeSet<&str> = seen.filter(|uuid| !uuid.is_empty()).collect();
        assert_eq!(seen, expected, "{container}: {said}");
        let all = node.machine.instances();
        let its = all.iter().filter(|i| expected.contains(i.uuid.as_str()));
        let its = its.flat_map(|instance| node.machine.nodes_of(instance));
        assert_eq!(nodes(&said), its.collect(), "{container}: {said}");
        said
    };
    sees("init", &[two_a, two_b]);
    let said = sees("side", &[two_b]);
    has(&said, &format!("RUNMIG_SLICE_B={two_b}\n"));
    assert!(!said.contains("RUNMIG_SLICE_A="), "{said}");
    sees("plain", &[]);
    let of_c = || {
        let said = sees("c", &[two_a, two_b, own]);
        for (claim, uuid) in [("TWO__A", two_a), ("TWO__B", two_b), ("OWN__A", own)] {
            has(&said, &format!("RUNMIG_SLICE_{claim}={uuid}\n"));
        }
    };
    of_c();
    // It has the slice of one claim twice.
    let users = node.leases();
    let of = |name: &str| users.iter().filter(|l| l["containerName"] == name).count();
    assert_eq!((of("c"), of("side"), of("plain")), (3, 1, 0), "{users:#?}");

    // An ephemeral container cannot have a claim.
    let debug = ["debug", "several", "--container=late", "--image", IMAGE];
    let shows = ["--", "sh", "-c", SHOW];
    node.kubectl(&[&debug[..], &shows].concat()).ok();
    let ended =
        "jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.reason}=Completed";
    node.is(ended, "pod/several");
    sees("late", &[]);

    // The same slices after a restart.
    // The container may take the shell along before that answers; its next start shows that it ended.
    node.kubectl(&["exec", "several", "-c", "c", "--", "sh", "-c", "kill 1"]);
    let restarted = "jsonpath={.status.containerStatuses[?(@.name==\"c\")].restartCount}=1";
    node.is(restarted, "pod/several");
    node.is_ready("several");
    of_c();
    node.delete("several");
    for template in ["two", "one"] {
        let delete = ["delete", "resourceclaimtemplate", template];
        node.kubectl(&delete).ok();
    }
    is_over(node);
}

/// Writes the specification of the driver's files, as `nvidia-ctk cdi generate` does.
fn driver_files(node: &Node, host: &str) {
    let text = json!({
        "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
        "devices": [{"name": "all", "containerEdits": {"env": ["X=y"]}}],
        "containerEdits": {"mounts": [
            {"hostPath": host, "containerPath": "/usr/lib/libcuda.so.1", "options": ["ro", "bind"]},
        ]},
    });
    fs::create_dir_all(cdi_folder(node)).unwrap();
    fs::write(cdi_folder(node).join("nvidia.json"), text.to_string()).unwrap();
}

/// A pod gets the driver's files, and Prepare names one that is not there.
/// Failure: the CDI specification names a driver's file that is missing
fn missing_driver_file(node: &Node) {
    driver_files(node, "/none/libcuda.so.570");
    template(node, "one", &["a"]);
    let spec = json!({
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": "two", "resourceClaimTemplateName": "one"}],
        "containers": [container("c", &["two"])],
    });
    node.pod_of("broken", json!({}), spec);
    let why = "/none/libcuda.so.570 is missing";
    eventually("the pod says why it does not run", || {
        node.describe("broken").contains(why)
    });
    node.delete("broken");
    node.kubectl(&["delete", "resourceclaimtemplate", "one"])
        .ok();
}

/// Pods with and without the class runmig on the slice of one claim. No other pod gets it.
pub fn several_pods_on_a_claim(node: &Node) {
    missing_driver_file(node);
    driver_files(node, "/etc/passwd");
    node.apply(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "shared"}, "spec": requests(&["a"]),
    }));
    let pods = ["plain", "sealed", "third"];
    for name in pods {
        let mut spec = json!({
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "two", "resourceClaimName": "shared"}],
            "containers": [container("c", &["two"])],
        });
        if name == "sealed" {
            spec["runtimeClassName"] = json!("runmig");
        }
        node.pod_of(name, json!({}), spec);
    }
    for name in pods {
        node.is_ready(name);
    }
    let instance = node.machine.the_instance();
    let its = node.machine.nodes_of(&instance);
    for name in pods {
        let said = logs(node, name, "c");
        assert_eq!(nodes(&said), its, "{name}: {said}");
        let is_sealed = name == "sealed";
        let expected = if is_sealed { &*instance.uuid } else { "void" };
        assert_eq!(visible(&said), Some(expected), "{name}: {said}");
        let inside = node.kubectl(&["exec", name, "--", "sh", "-c", SHOW]);
        let inside = inside.ok().stdout;
        assert_eq!(nodes(&inside), its, "{name}: {inside}");
        let file = ["exec", name, "--", "cat", "/usr/lib/libcuda.so.1"];
        assert!(node.kubectl(&file).ok().stdout.contains("root:"));
        // The kubelet starts each container once.
        let pod = node.get(&["pod", name]);
        let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
        assert_eq!(restarts, 0, "{pod}");
    }
    fs::remove_file(cdi_folder(node).join("nvidia.json")).unwrap();
    spy(node);
    for name in pods {
        assert_eq!(node.machine.the_instance(), instance);
        node.delete(name);
    }
    node.kubectl(&["delete", "resourceclaim", "shared"]).ok();
    is_over(node);
}

/// A pod of another namespace names the CDI device of the claim, by the engine's own interface.
fn spy(node: &Node) {
    // A sandbox of CRI-O's that the kubelet did not ask for wants a better OOM score, which takes CAP_SYS_RESOURCE.
    if node.engine == "cri-o" {
        return;
    }
    let claim = node.get(&["resourceclaim", "shared"]);
    let uid = claim["metadata"]["uid"].as_str().unwrap();
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    let device = result["device"].as_str().unwrap();
    let device = format!("gpu.runmig.dev/slice={uid}-{device}");
    let file = |name: &str, content: Value| {
        let file = node.dir().join(name);
        fs::write(&file, content.to_string()).unwrap();
        file.into_os_string().into_string().unwrap()
    };
    let metadata = json!({"name": "spy", "namespace": "other", "uid": "spy-uid", "attempt": 1});
    let pod = file("spy-pod.json", json!({"metadata": metadata, "linux": {}}));
    let container = json!({
        "metadata": {"name": "spy"},
        "image": {"image": IMAGE},
        "command": ["sleep", "1000"],
        "annotations": {"cdi.k8s.io/spy": device},
        "linux": {},
    });
    let container = file("spy.json", container);
    let id = |said: String| said.trim().to_owned();
    let why = "is not reserved for pod other/spy (uid spy-uid)";
    // The kubelet ends a sandbox that it does not know, perhaps before the engine has made the container.
    let is_refused = || {
        let sandbox = id(node.run("crictl", &["runp", &pod]).ok().stdout);
        let made = node.run("crictl", &["create", &sandbox, &container, &pod]);
        // An engine calls the low-level runtime at the create or at the start.
        let said = match made.status.success() {
            true => node.run("crictl", &["start", &id(made.stdout)]),
            false => made,
        };
        assert!(!said.status.success(), "{said:?}");
        node.run("crictl", &["rmp", "--force", &sandbox]);
        said.stderr.contains(why)
    };
    eventually("the create is refused for the claim's sake", is_refused);
    eventually("the container is gone", || {
        let leases = node.leases();
        leases.iter().all(|lease| lease["containerName"] != "spy")
    });
}

fn requests(names: &[&str]) -> Value {
    let request =
        |name: &&str| json!({"name": name, "exactly": {"deviceClassName": "mig-1g.10gb"}});
    let requests: Vec<Value> = names.iter().map(request).collect();
    json!({"devices": {"requests": requests}})
}

fn template(node: &Node, name: &str, names: &[&str]) {
    node.apply(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": name}, "spec": {"spec": requests(names)},
    }));
}

fn script(then: &str) -> String {
    format!("trap 'exit 0' TERM; {SHOW}; env | grep ^RUNMIG_SLICE; {then}")
}

fn container(name: &str, claims: &[&str]) -> Value {
    let claims: Vec<Value> = claims.iter().map(|claim| json!({"name": claim})).collect();
    json!({
        "name": name, "image": IMAGE,
        "command": ["sh", "-c", script("sleep 10000 & wait")],
        "resources": {"claims": claims},
    })
}

fn logs(node: &Node, pod: &str, container: &str) -> String {
    node.kubectl(&["logs", pod, "-c", container]).ok().stdout
}

/// The MIG UUIDs of the claims on record, by their names and requests.
fn slices(node: &Node) -> BTreeMap<(String, String), String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let leases = node.leases();
    let of_claims = leases.iter().filter(|lease| lease["claim"].is_object());
    let slice = |lease: &Value| {
        let claim = &lease["claim"];
        let of = (text(&claim["name"]), text(&claim["request"]));
        (of, text(&lease["migUUID"]))
    };
    of_claims.map(slice).collect()
}
