//! A reboot takes all slices; what starts by itself has new ones, and the layout of the machine comes back before.

use super::layout::Layout;
use super::machine::{IMAGE, Node, SIM};
use super::podman::{passed, remove, run};
use super::slices::{ASK, STAYS, opens_its_slice_alone};

const QUADLET: &str = "/etc/containers/systemd/quadlet.container";

/// Notes the drivers with which the machine boots.
fn notes_drivers(node: &Node) {
    node.ok(&format!(
        "mkdir -p {FRESH}
         printf '[Service]\\nExecStart=/bin/cp {SIM}/proc/devices /root/at-boot\\n' >{FRESH}/fresh.conf
         systemctl daemon-reload"
    ));
}

const FRESH: &str = "/etc/systemd/system/sim.service.d";

/// Failure: a machine boots, and the first container comes before anything has loaded nvidia-uvm
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
    notes_drivers(node);
    node.reboot();
    // Two containers start by themselves, perhaps at once.
    let drivers = node.ok(&format!(
        "cat /root/at-boot; echo --; cat {SIM}/proc/devices"
    ));
    let (at_boot, now) = drivers.split_once("--").unwrap();
    testkit::lacks(at_boot, "nvidia-uvm");
    testkit::has(now, "nvidia-uvm");
    layout.is_in_place();
    let units = ["containerd", "podman-restart", "quadlet"];
    layout.came_before(&units.map(|unit| format!("{unit}.service")));
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
    passed(node, "the machine is rebooted");

    node.ok(&format!(
        "systemctl stop quadlet.service; rm {QUADLET}; systemctl daemon-reload"
    ));
    layout.failure_names_cause();
    layout.is_on_record();
    assert_eq!(node.leases().len(), 2);
    remove(node, &again);
    remove(node, &lost);
    node.ok(&format!(
        "rm -r {FRESH} /root/at-boot; systemctl daemon-reload"
    ));
    // No layout ends a lease, so the empty one comes last.
    drop(layout);
    node.nothing_is_left();
}
