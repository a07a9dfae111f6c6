//! A cluster of two nodes, each with an engine and a GPU of its own.

use crate::node::{Node, eventually, plain_spec, pod_spec, stays};
use testkit::prelude::*;

/// The slices of 1g.10gb that fit a GPU.
const PLACES: usize = 7;

/// The scheduler sees that a local slice fills one GPU, and puts every pod on the other.
#[test]
fn pods_avoid_the_full_node() {
    let begun = Instant::now();
    let Some(node) = Node::up_with("containerd", &["--nodes", "2"]) else {
        return;
    };
    eprintln!("two nodes: up: {:.0} s", begun.elapsed().as_secs_f64());
    let mut local = pod_spec(&stays("true"), "Always");
    local["nodeName"] = json!("node2");
    node.pod_of("local", json!({"runmig.dev/slice": "7g.80gb"}), local);
    node.is_ready("local");
    eventually("the counters of the full node are lower", || {
        let set = ".spec.sharedCounters[0].counters.memory.value";
        let query = format!("{{.items[?(@.spec.nodeName==\"node2\")]{set}}}");
        node.in_resource_slices(&query) == "0"
    });

    let names: Vec<String> = (0..PLACES).map(|n| format!("n{n}")).collect();
    for name in &names {
        pod(&node, name, "1g.10gb");
    }
    for name in &names {
        node.is_ready(name);
    }
    let pods = node.get(&["pods"]);
    let of_claims = pods["items"].as_array().unwrap().iter();
    let of_claims = of_claims.filter(|pod| pod["metadata"]["name"] != "local");
    let nodes: Vec<&Value> = of_claims.map(|pod| &pod["spec"]["nodeName"]).collect();
    assert_eq!(nodes, [&json!("node"); PLACES]);
    assert_eq!(node.machine.instances().len(), PLACES);
    for reason in ["FailedPrepareDynamicResources", "Failed"] {
        let of = format!("--field-selector=reason={reason}");
        assert_eq!(node.get(&["events", &of])["items"], json!([]));
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    node.patiently(&[&["delete", "pod"], &all[..]].concat());

    // The small slice leaves room for the large one on the same GPU.
    pod(&node, "small", "1g.10gb");
    node.is_ready("small");
    pod(&node, "large", "4g.40gb");
    node.is_ready("large");
    let mut profiles: Vec<String> = { node.machine.instances().into_iter() }
        .map(|instance| instance.profile)
        .collect();
    profiles.sort();
    assert_eq!(profiles, ["1g.10gb", "4g.40gb"]);
    eprintln!("two nodes: {:.0} s", begun.elapsed().as_secs_f64());
}

/// A pod that requests an extended resource, as one for NVIDIA's device plugin.
pub fn pod(node: &Node, name: &str, profile: &str) {
    let mut spec = plain_spec("true");
    let resource = format!("nvidia.com/mig-{profile}");
    spec["containers"][0]["resources"] = json!({"limits": {resource: 1}});
    node.pod_of(name, json!({}), spec);
}
