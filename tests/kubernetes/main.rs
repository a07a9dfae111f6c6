//! A real Kubernetes node, over containerd 2 and over CRI-O, that runs pods through runmig.
//!
//! The tests use the node that `scripts/kubernetes` makes: it installs runmig and the engine's
//! configuration as the documents say.

mod cases;
mod claims;
mod deployed;
mod moments;
mod node;
mod several;
mod two_nodes;

use node::Node;

type Case = fn(&Node);

/// One node for all cases, as one comes up in half a minute; each leaves it as it was.
fn every_case(engine: &'static str) {
    let begun = std::time::Instant::now();
    let Some(node) = Node::up(engine) else {
        return;
    };
    eprintln!("{engine}: up: {:.0} s", begun.elapsed().as_secs_f64());
    let cases: [(&str, Case); 21] = testkit::rows! {
        "a pod by annotation" => cases::a_pod_by_annotation;
        "the pod that is shipped" => cases::the_pod_that_is_shipped;
        "a class by size" => cases::class_by_size;
        "a GPU without MIG" => cases::a_gpu_without_mig;
        "a job that ends" => cases::a_job_that_ends;
        "no room, then room" => cases::no_room_then_room;
        "a pod that waits for room" => cases::a_pod_that_waits;
        "deleted while it waits" => cases::deleted_while_it_waits;
        "deleted before room comes" => cases::deleted_before_room_comes;
        "the engine is restarted" => cases::survives_restarted_engine;
        "the node is rebooted" => cases::the_node_is_rebooted;
        "the claims that are shipped" => claims::the_claims_that_are_shipped;
        "a pod by claim" => claims::a_pod_by_claim;
        "a reboot under a claim" => claims::a_reboot_under_a_claim;
        "counters follow local slices" => claims::counters_follow_local_slices;
        "a drained GPU" => claims::a_drained_gpu;
        "several claims in a pod" => several::several_claims_in_a_pod;
        "several pods on a claim" => several::several_pods_on_a_claim;
        "a promise moves" => moments::promise_moves;
        "a promise waits" => moments::promise_waits;
        "a rollout and an uninstall" => deployed::pods_outlive_the_driver;
    };
    // To run one of them alone, by a part of its name.
    let only = std::env::var("RUNMIG_CASE").unwrap_or_default();
    for (name, case) in cases.iter().filter(|(name, _)| name.contains(&only)) {
        let begun = std::time::Instant::now();
        eprintln!("{engine}: {name}");
        case(&node);
        node.nothing_is_left();
        eprintln!("{engine}: {name}: {:.0} s", begun.elapsed().as_secs_f64());
    }
}

testkit::tests! {
    over_containerd: every_case("containerd");
    over_cri_o: every_case("cri-o");
}
