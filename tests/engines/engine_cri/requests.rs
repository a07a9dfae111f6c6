//! The sources of a request, and the part of it that reaches runmig.

use crate::engine_cri::{passed, shows};
use testkit::Instance;
use testkit::cri::Cri;
use testkit::prelude::*;

crate::on_every_engine! {
    gives_pod_two_slices, none_gets_no_slice, per_container_key, container_annotation,
    shares_slice_in_pod, next_pod_gets_idle_slice, runtime_gives_each_container_a_slice,
}

/// The container has a slice of this profile, and sees that one and no other.
#[track_caller]
fn has(cri: &Cri, id: &str, profile: &str) -> Instance {
    let lease = cri.setup.lease(id);
    assert_eq!(lease["state"], "ready");
    assert_eq!(lease["profile"], profile);
    let instances = cri.setup.machine.instances();
    let own = instances.into_iter().find(|i| lease["migUUID"] == i.uuid);
    let own = own.expect("the driver has it");
    let logs = printed(cri, id);
    assert_eq!(visible(&logs), Some(own.uuid.as_str()));
    assert_eq!(nodes(&logs), cri.setup.machine.nodes_of(&own));
    own
}

#[track_caller]
fn has_none(cri: &Cri, id: &str) {
    assert_eq!(printed(cri, id), "VISIBLE=\n");
    assert!(cri.setup.leases().iter().all(|l| l["container"] != id));
}

#[track_caller]
fn printed(cri: &Cri, id: &str) -> String {
    until("it printed", || cri.logs(id).contains("VISIBLE="));
    cri.logs(id)
}

fn gives_pod_two_slices(cri: &mut Cri) {
    let big = ("slice.runmig.dev/big", "3g.40gb");
    let pod = cri.pod_with_common_pids(&[("runmig.dev/slice", "1g.10gb"), big]);
    // The sandbox carries what the pod does.
    cri.setup.nothing_is_left();
    let sandbox = cri.crictl(&["inspectp", &pod.id]).ok().json();
    let init = sandbox["info"]["pid"].as_i64().unwrap();
    let dev = format!("/proc/{init}/root/dev");
    assert!(init > 1 && Path::new(&dev).join("null").exists());
    assert!(!Path::new(&dev).join("nvidiactl").exists());

    let small = cri.run(&pod, "small", &shows());
    let big = cri.run(&pod, "big", &shows());
    assert_ne!(has(cri, &small, "1g.10gb"), has(cri, &big, "3g.40gb"));
    assert_eq!(cri.setup.leases().len(), 2);
    passed(cri, "a pod of two with different slices");
}

/// Its containers have it together, by the engine's word for what a pod is.
fn shares_slice_in_pod(cri: &mut Cri) {
    let together = [("runmig.dev/slice", "1g.10gb"), ("runmig.dev/scope", "pod")];
    let pod = cri.pod(&together);
    let one = cri.run(&pod, "one", &shows());
    let two = cri.run(&pod, "two", &shows());
    let shared = has(cri, &one, "1g.10gb");
    assert_eq!(has(cri, &two, "1g.10gb"), shared);
    let other = cri.pod(&together);
    let third = cri.run(&other, "one", &shows());
    assert_ne!(has(cri, &third, "1g.10gb"), shared);
    // A container that is made again, as after a crash, has it again.
    cri.crictl(&["rm", "--force", &one]).ok();
    let again = cri.run(&pod, "one", &shows());
    assert_eq!(has(cri, &again, "1g.10gb"), shared);
    cri.crictl(&["rmp", "--force", &pod.id]).ok();
    assert_ne!(cri.setup.machine.the_instance(), shared);
}

/// A slice that was a pod's is kept for the next.
fn next_pod_gets_idle_slice(cri: &mut Cri) {
    cri.setup.configure("keep_idle = \"5m\"");
    cri.runtime.configure_again(cri.setup);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let pod = cri.pod(&[("runmig.dev/slice", "1g.10gb")]);
        let id = cri.run(&pod, "web", &shows());
        seen.push(has(cri, &id, "1g.10gb"));
        cri.crictl(&["rmp", "--force", &pod.id]).ok();
        assert_eq!(cri.setup.the_lease()["state"], "idle");
    }
    assert_eq!(seen[0], seen[1]);
    cri.setup.configure("");
    cri.setup.migctl(&["gc"]).ok();
}

fn none_gets_no_slice(cri: &mut Cri) {
    let none = ("slice.runmig.dev/plain", "none");
    let pod = cri.pod(&[("runmig.dev/slice", "1g.10gb"), none]);
    let plain = cri.run(&pod, "plain", &shows());
    has_none(cri, &plain);
    cri.setup.nothing_is_left();
    let web = cri.run(&pod, "web", &shows());
    has(cri, &web, "1g.10gb");
    let lease = cri.setup.the_lease();
    assert_eq!(lease["namespace"], "default");
    assert_eq!(lease["pod"], pod.name());
    assert_eq!(lease["containerName"], "web");
    passed(cri, "a slice by annotation");
    passed(cri, "none");
}

fn per_container_key(cri: &mut Cri) {
    let pod = cri.pod(&[("slice.runmig.dev/web", "2g.20gb")]);
    let db = cri.run(&pod, "db", &shows());
    has_none(cri, &db);
    let web = cri.run(&pod, "web", &shows());
    has(cri, &web, "2g.20gb");
    passed(cri, "per-container key");
}

/// As a device plugin sets it: only the engine and the runtime see those, not the pod's author. Both
/// engines write the pod's annotations into config.json and then the container's over them.
fn container_annotation(cri: &mut Cri) {
    let own = [("runmig.dev/slice", "2g.20gb")];
    for (of_pod, profile) in testkit::rows! {
        &[][..] => "2g.20gb";
        &[("runmig.dev/slice", "1g.10gb")] => "2g.20gb";
        // The pod's word for one container goes before what is said for any.
        &[("slice.runmig.dev/web", "1g.10gb")] => "1g.10gb";
    } {
        let pod = cri.pod(of_pod);
        let id = cri.try_run(&pod, "web", &shows(), &own).unwrap();
        has(cri, &id, profile);
        cri.crictl(&["rmp", "--force", &pod.id]).ok();
        cri.setup.nothing_is_left();
    }
    passed(cri, "container annotation");
}

/// As a RuntimeClass by size does it: nothing in the pod asks. The kubelet has an init container and an ephemeral one made as
/// any other; that one has a name by `kubectl debug`, or another one and a target.
fn runtime_gives_each_container_a_slice(cri: &mut Cri) {
    cri.runtime.ask(cri.setup, "slice = \"1g.10gb\"");
    // A sandbox has nothing, whatever its pod asks for; on CRI-O only this one is a container.
    let other = cri.pod_with_common_pids(&[("runmig.dev/slice", "2g.20gb")]);
    let mut pod = cri.pod(&[("slice.runmig.dev/log", "none")]);
    cri.setup.nothing_is_left();
    let own = cri.run(&other, "web", &shows());
    has(cri, &own, "2g.20gb");
    cri.crictl(&["rmp", "--force", &other.id]).ok();
    let common = cri.pod_with_common_pids(&[]);
    let own = cri.run(&common, "web", &shows());
    has(cri, &own, "1g.10gb");
    cri.crictl(&["rmp", "--force", &common.id]).ok();

    let init = cri.run(&pod, "init", SHOW);
    until("it has ended", || cri.state(&init) == "CONTAINER_EXITED");
    if cri.engine.is_containerd() {
        until("its slice is back", || cri.setup.leases().is_empty());
    } else {
        // CRI-O deletes it late.
        cri.setup.migctl(&["gc"]).ok();
        cri.setup.nothing_is_left();
    }
    let one = cri.run(&pod, "one", &shows());
    let two = cri.run(&pod, "two", &shows());
    let log = cri.run(&pod, "log", &shows());
    let ephemeral = cri.run(&pod, "debugger-x7k2p", &shows());
    pod.target(&one);
    let named = cri.run(&pod, "look", &shows());
    let slices = [&one, &two].map(|id| has(cri, id, "1g.10gb").uuid);
    assert_eq!(BTreeSet::from(slices).len(), 2);
    has_none(cri, &log);
    has_none(cri, &ephemeral);
    has_none(cri, &named);
    passed(cri, "a slice by the runtime's request");
}
