//! containerd 1.7 as a unit, with systemd's cgroup manager.

use super::machine::{IMAGE, Node, quote};
use super::sharing::{OnL4, ask, limits_own_cgroup, mounts, no_limit_is_left};
use super::slices::{ASK, STAYS, opens_its_slice_alone, systemd_knows_the_rules, the_lease};
use std::sync::OnceLock;
use testkit::sharing::SHARE_AT_DRIVER;
use testkit::table;

#[track_caller]
fn run(node: &Node, id: &str) {
    run_with(node, id, &format!("--cap-add CAP_MKNOD {ASK}"));
}

#[track_caller]
fn run_with(node: &Node, id: &str, options: &str) {
    node.ok(&format!(
        "ctr image list --quiet | grep -q . || {{
             podman save --quiet --format oci-archive --output /var/tmp/image.tar {IMAGE}
             ctr image import /var/tmp/image.tar
         }} >/dev/null
         ctr run --detach --runc-binary /usr/local/bin/runmig --runc-systemd-cgroup \
             --cgroup system.slice:runmig:{id} {options} {IMAGE} {id} \
             /bin/sh -c {} </dev/null",
        quote(STAYS)
    ));
}

fn enter(id: &str) -> String {
    format!("ctr task exec --exec-id $RANDOM {id}")
}

#[track_caller]
fn remove(node: &Node, id: &str) {
    node.ok(&format!("ctr task rm --force {id}; ctr container rm {id}"));
}

#[track_caller]
fn passed(node: &Node, case: &str) {
    static VERSION: OnceLock<String> = OnceLock::new();
    let version = VERSION.get_or_init(|| node.ok("containerd --version"));
    let version = version.split([' ', '~']).nth(2).unwrap();
    table::passed(&format!("containerd {version}, Debian 13"), case);
}

pub fn gets_its_slice_alone(node: &Node) {
    run(node, "alone");
    the_lease(node, "alone");
    opens_its_slice_alone(node, &enter("alone"));
    systemd_knows_the_rules(node, "runmig-alone.scope", "/dev/char/195:0");
    node.ok("systemctl daemon-reload");
    opens_its_slice_alone(node, &enter("alone"));
    remove(node, "alone");
    node.nothing_is_left();
    for case in ["a slice by annotation", "exec", "remove"] {
        passed(node, case);
    }
}

pub fn share_at_driver_holds(node: &Node) {
    let kind = SHARE_AT_DRIVER;
    let on_l4 = OnL4::new(node, &kind);
    let mount = |(host, inside, access): (String, String, &str)| {
        format!("--mount type=bind,src={host},dst={inside},options=rbind:{access}")
    };
    let mounts: Vec<String> = mounts(&kind).into_iter().map(mount).collect();
    // ctr mounts no cgroups, by which the simulated driver knows a process. Before Linux 6.13 it has no other way.
    let cgroups = "--mount type=cgroup,src=cgroup,dst=/sys/fs/cgroup,options=ro";
    let options = format!("{} {cgroups} {}", ask(&kind), mounts.join(" "));
    run_with(node, "shares", &options);
    let lease = the_lease(node, "shares");
    let info = || node.ok(&format!("{} /client/cuda-client info", enter("shares")));
    assert_eq!(info(), kind.info);
    node.ok("systemctl daemon-reload; systemctl restart containerd");
    assert_eq!(info(), kind.info);
    limits_own_cgroup(node, &kind, &lease);
    remove(node, "shares");
    no_limit_is_left(node, &kind);
    passed(node, kind.row);
    drop(on_l4);
    node.nothing_is_left();
}

pub fn restart_keeps_the_slice(node: &Node) {
    run(node, "stays");
    let before = the_lease(node, "stays");
    node.ok("systemctl restart containerd");
    node.ok("migctl gc");
    assert_eq!(the_lease(node, "stays"), before);
    opens_its_slice_alone(node, &enter("stays"));
    remove(node, "stays");
    node.nothing_is_left();
    passed(node, "the engine is restarted");
}

/// Together with its shims, so that the container is the engine's no more: once it is back, it removes
/// what is left of the task.
/// Failure: systemd kills containerd together with its shims
pub fn kill_releases_the_slice(node: &Node) {
    run(node, "lost");
    the_lease(node, "lost");
    node.ok("systemctl kill --signal=KILL containerd");
    node.until("systemctl is-active --quiet containerd && [ -z \"$(ctr task list --quiet)\" ]");
    node.until("migctl list -o json | tr -d ' \\n' | grep -q '\"items\":\\[\\]'");
    node.ok("ctr container rm lost");
    node.nothing_is_left();
    passed(node, "the engine is killed");
}
