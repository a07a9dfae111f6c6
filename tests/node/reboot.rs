//! A reboot takes all slices; what starts by itself has new ones, and the layout of the machine comes back before.

use super::layout::Layout;
use super::machine::{IMAGE, Node};
use super::podman::{remove, run};
use super::slices::{ASK, STAYS, opens_its_slice_alone};
use testkit::table;

const QUADLET: &str = "/etc/containers/systemd/quadlet.container";

/// Failure: the layout of a boot fails
/// Failure: a machine with a layout reboots
/// Failure: a node reboots, and systemd starts quadlets and containers with `--restart=always` again
pub fn gives_slices_and_layout_again(node: &Node) {
    node.ok(&format!(
        "mkdir -p /etc/containers/systemd
         cat >{QUADLET} <<'UNIT'
[Unit]
After=runmig-layout.service
[Container]
Image={IMAGE}
ContainerName=quadlet
GlobalArgs=--runtime=runmig
Annotation=runmig.dev/slice=1g.10gb
AddCapability=MKNOD
Network=none
Exec=/bin/sleep 1000000
[Install]
WantedBy=multi-user.target
UNIT
         systemctl daemon-reload
         systemctl start quadlet.service
         systemctl unmask --quiet podman-restart.service
         systemctl enable --quiet podman-restart.service"
    ));
    opens_its_slice_alone(node, "podman exec quadlet");
    let again = run(node, "runmig", &format!("--restart=always {ASK}"), STAYS);
    let lost = run(node, "runmig", ASK, STAYS);
    let before = node.leases();
    assert_eq!(before.len(), 3, "{before:?}");

    let layout = Layout::enable(node);
    node.reboot();
    layout.is_in_place();
    layout.came_before(&[
        "containerd.service",
        "podman-restart.service",
        "quadlet.service",
    ]);
    let mut leases = node.leases();
    leases.retain(|lease| lease["state"] != "layout");
    assert_eq!(leases.len(), 2, "{leases:?}");
    assert_eq!(node.instances(), 3);
    for lease in &leases {
        assert_eq!(lease["state"], "ready");
        assert_ne!(lease["container"], lost.as_str());
        assert!(before.iter().all(|old| old["id"] != lease["id"]), "{lease}");
    }
    opens_its_slice_alone(node, "podman exec quadlet");
    let version = node.ok("podman --version");
    let version = version.rsplit(' ').next().unwrap();
    table::passed(
        &format!("podman {version}, Debian 13"),
        "the machine is rebooted",
    );

    node.ok(&format!(
        "systemctl stop quadlet.service; rm {QUADLET}; systemctl daemon-reload"
    ));
    layout.failure_names_cause();
    layout.is_on_record();
    assert_eq!(node.leases().len(), 2);
    remove(node, &again);
    remove(node, &lost);
    // No layout ends a lease, so the empty one comes last.
    drop(layout);
    node.nothing_is_left();
}
