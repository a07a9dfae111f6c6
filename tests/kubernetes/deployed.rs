//! The driver as it is shipped: a rollout and an uninstall beside pods with claims.

use crate::claims::{pod, template};
use crate::node::{Node, eventually};
use testkit::has;

const DAEMONSET: &str = "daemonset/runmig-dra";

/// A pod runs through both on the same slice, and another starts by the next driver.
pub fn pods_outlive_the_driver(node: &Node) {
    template(node);
    pod(node, "stays", "true");
    node.is_ready("stays");
    let instance = node.machine.the_instance();
    let leases = node.leases();

    let at = |arguments: &[&str]| node.patiently(&[&["--namespace=runmig"], arguments].concat());
    let in_namespace = |arguments: &[&str]| {
        let all = [&["--namespace=runmig"], arguments].concat();
        node.kubectl(&all).ok()
    };
    // A pod that comes before waits a minute.
    let is_registered = || {
        eventually("the next driver serves the kubelet", || {
            let pods = in_namespace(&["get", "pods", "--output=name"]).stdout;
            let logs = [
                "--namespace=runmig",
                "logs",
                DAEMONSET,
                "--container=driver",
            ];
            let said = node.kubectl(&logs).stdout;
            pods.lines().count() == 1 && said.contains("the kubelet uses this driver")
        });
    };
    in_namespace(&["rollout", "restart", DAEMONSET]);
    at(&["rollout", "status", DAEMONSET]);
    is_registered();
    pod(node, "comes", "true");
    node.is_ready("comes");
    node.delete("comes");
    eventually("the second slice is gone", || {
        node.leases().len() == leases.len()
    });
    assert_eq!(node.leases(), leases);
    assert_eq!(node.machine.the_instance(), instance);

    let driver = "--kustomize=/run/node/driver";
    at(&["delete", "--wait=true", DAEMONSET]);
    eventually("the driver is gone", || {
        let pods = in_namespace(&["get", "pods", "--output=name"]);
        pods.stdout.is_empty()
    });
    // The rest shows what an uninstall leaves.
    assert_eq!(node.leases(), leases);
    let list = node.run("migctl", &["list", "-o", "wide"]).ok().stdout;
    has(&list, "claim default/stays-gpu-");
    node.kubectl(&["apply", driver]).ok();
    at(&["rollout", "status", DAEMONSET]);
    is_registered();
    node.delete("stays");
    assert_eq!(node.machine.instances(), []);
    let of = "--field-selector=reason=FailedPrepareDynamicResources";
    let failed = node.get(&["events", of]);
    // Other cases cause some for pods of their own.
    let failed = failed["items"].as_array().unwrap().iter();
    let mut ours = failed.filter(|event| {
        let pod = event["involvedObject"]["name"].as_str();
        ["stays", "comes"].contains(&pod.unwrap_or_default())
    });
    assert_eq!(ours.next(), None);
}
