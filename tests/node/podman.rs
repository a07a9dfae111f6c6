//! podman 5.4 with systemd's cgroup manager and AppArmor.

use super::machine::{IMAGE, Node, quote};
use super::slices::{ASK, STAYS, opens_its_slice_alone, systemd_knows_the_rules, the_lease};
use std::sync::OnceLock;
use testkit::prelude::*;

/// Starts a container; its id.
#[track_caller]
pub fn run(node: &Node, runtime: &str, options: &str, script: &str) -> String {
    let said = node.ok(&format!(
        "podman --runtime {runtime} run --detach --network=none {options} {IMAGE} /bin/sh -c {}",
        quote(script)
    ));
    assert_eq!(said.len(), 64, "an id: {said}");
    said
}

#[track_caller]
pub fn remove(node: &Node, id: &str) {
    node.ok(&format!("podman rm --force --time=0 {id}"));
}

#[track_caller]
pub fn state(node: &Node, id: &str, what: &str) -> String {
    node.ok(&format!(
        "podman inspect --format '{{{{.State.{what}}}}}' {id}"
    ))
}

#[track_caller]
pub fn passed(node: &Node, case: &str) {
    static VERSION: OnceLock<String> = OnceLock::new();
    let version = VERSION.get_or_init(|| node.ok("podman --version"));
    let version = version.rsplit(' ').next().unwrap();
    table::passed(&format!("podman {version}, Debian 13"), case);
}

#[track_caller]
fn has_a_slice_of_its_own(node: &Node, runtime: &str, gpu: &str) {
    let script =
        format!("echo VISIBLE=$NVIDIA_VISIBLE_DEVICES; cat /proc/self/attr/current; {STAYS}");
    let id = run(node, runtime, &format!("--cap-add=MKNOD {ASK}"), &script);
    let lease = the_lease(node, &id);
    let logs = node.ok(&format!("podman logs {id}"));
    assert_eq!(visible(&logs), lease["migUUID"].as_str());
    has(&logs, "containers-default-");
    has(&logs, "(enforce)");
    let enter = format!("podman exec {id}");
    opens_its_slice_alone(node, &enter);
    let scope = format!("libpod-{id}.scope");
    systemd_knows_the_rules(node, &scope, gpu);
    // systemd then writes its rules anew.
    node.ok(&format!(
        "systemctl set-property --runtime {scope} MemoryMax=1G; systemctl daemon-reload"
    ));
    opens_its_slice_alone(node, &enter);
    remove(node, &id);
    node.nothing_is_left();
}

/// Failure: `systemctl daemon-reload`, `systemctl set-property` or an update makes systemd write a container's device rules again
pub fn gets_its_slice_alone(node: &Node) {
    has_a_slice_of_its_own(node, "runmig", "/dev/char/195:0");
    for case in ["a slice by annotation", "exec", "logs", "remove"] {
        passed(node, case);
    }
}

pub fn crun_gets_the_same(node: &Node) {
    has_a_slice_of_its_own(node, "runmig-crun", "char-195");
    passed(node, "on crun");
}

pub fn update_keeps_the_devices(node: &Node) {
    for runtime in ["runmig", "runmig-crun"] {
        let id = run(node, runtime, &format!("--cap-add=MKNOD {ASK}"), STAYS);
        node.ok(&format!(
            "podman update --memory=64m --cpu-shares=512 --pids-limit=99 {id}"
        ));
        let limit = node.ok(&format!("podman exec {id} cat /sys/fs/cgroup/memory.max"));
        assert_eq!(limit, "67108864");
        opens_its_slice_alone(node, &format!("podman exec {id}"));
        remove(node, &id);
        node.nothing_is_left();
    }
    passed(node, "update");
}

pub fn restart_policy_takes_another_slice(node: &Node) {
    let id = run(node, "runmig", &format!("--restart=always {ASK}"), STAYS);
    let before = the_lease(node, &id);
    node.ok(&format!("kill -9 {}", before["initPid"]));
    node.until(&format!(
        "migctl list -o json | grep -q '\"ready\"' && ! migctl list -o json | grep -q {}",
        before["id"].as_str().unwrap()
    ));
    assert_ne!(the_lease(node, &id)["id"], before["id"]);
    remove(node, &id);
    node.nothing_is_left();
}
