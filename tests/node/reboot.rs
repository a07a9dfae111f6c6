//! A reboot takes all slices; what starts by itself has new ones, and the layout of the machine comes back before.

use super::layout::Layout;
use super::machine::{IMAGE, Node, SIM};
use super::podman::{remove, run};
use super::slices::{ASK, STAYS, opens_its_slice_alone};
use testkit::table;

const QUADLET: &str = "/etc/containers/systemd/quadlet.container";

/// Makes the machine boot as a server without a screen does: nothing loads nvidia-uvm until a program asks for it.
fn boots_without_uvm(node: &Node) {
    node.ok(&format!(
        r#"mkdir -p {FRESH} {SIM}/usr/bin
         cat >/usr/local/sbin/unload-uvm <<'UNLOAD'
#!/bin/sh
cp {SIM}/proc/devices /root/devices
sed -i '/ nvidia-uvm$/d' {SIM}/proc/devices
rm {SIM}/dev/nvidia-uvm {SIM}/dev/nvidia-uvm-tools
UNLOAD
         cat >{SIM}/usr/bin/nvidia-modprobe <<'LOAD'
#!/bin/sh
echo "$@" >>/root/asked
major=$(sed -n 's/ nvidia-uvm$//p' /root/devices)
cp /root/devices {SIM}/proc/devices
mknod -m 666 {SIM}/dev/nvidia-uvm c $major 0
mknod -m 666 {SIM}/dev/nvidia-uvm-tools c $major 1
exit 0
LOAD
         chmod 755 /usr/local/sbin/unload-uvm {SIM}/usr/bin/nvidia-modprobe
         printf '[Service]\nExecStart=/usr/local/sbin/unload-uvm\n' >{FRESH}/fresh.conf
         systemctl daemon-reload"#
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
    boots_without_uvm(node);
    node.reboot();
    // Two containers start by themselves, perhaps at once.
    assert_eq!(node.ok("head -n 1 /root/asked"), "-u -c 0");
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
    node.ok(&format!(
        "rm -r {FRESH} {SIM}/usr/bin/nvidia-modprobe; systemctl daemon-reload"
    ));
    // No layout ends a lease, so the empty one comes last.
    drop(layout);
    node.nothing_is_left();
}
