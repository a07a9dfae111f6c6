//! Checks which devices a container with a slice can open on the node.

use super::machine::{Node, SIM, quote};
use testkit::bundle::all_open;
use testkit::prelude::*;

pub const ASK: &str = "--annotation=runmig.dev/slice=1g.10gb";
/// Sleeps until it is told to end.
pub const STAYS: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";

/// Asserts that exactly one container has a slice, and gives its lease.
#[track_caller]
pub fn the_lease(node: &Node, container: &str) -> Value {
    let leases = node.leases();
    assert_eq!(leases.len(), 1, "{leases:?}");
    assert_eq!(leases[0]["container"], container);
    assert_eq!(leases[0]["state"], "ready");
    leases[0].clone()
}

/// Asserts that a container can open the nodes of its slice, and no others: not those that it makes
/// itself for another GPU, another instance's capability and the kernel's log. `enter` is the command
/// that runs a shell script in the container, which has to have CAP_MKNOD.
#[track_caller]
pub fn opens_its_slice_alone(node: &Node, enter: &str) {
    let inside = |script: &str| node.ok(&format!("{enter} /bin/sh -c {}", quote(script)));
    // An exec takes seconds there.
    let said = inside(&format!("{SHOW}; {OPEN}"));
    let own = nodes(&said);
    all_open(&said);
    let (caps, capability) = foreign_capability(node, &own);
    let gpu = own["nvidia0"].0;
    let script = format!(
        "for numbers in '{gpu} 1' '{caps} {capability}' '1 11'; do
             rm -f /dev/foreign
             mknod /dev/foreign c $numbers && echo made && (: </dev/foreign) 2>&1
         done
         rm -f /dev/foreign"
    );
    let said = inside(&script).to_lowercase();
    assert_eq!(said.matches("made").count(), 3, "{said}");
    assert_eq!(said.matches("operation not permitted").count(), 3, "{said}");
}

/// The device numbers of a capability that the container was not given.
#[track_caller]
fn foreign_capability(node: &Node, own: &BTreeMap<String, (u32, u32)>) -> (u32, u32) {
    let caps = own
        .iter()
        .filter(|(path, _)| path.starts_with("nvidia-caps/"));
    let caps: Vec<(u32, u32)> = caps.map(|(_, numbers)| *numbers).collect();
    let all = node.ok(&format!("cat {SIM}/proc/driver/nvidia-caps/mig-minors"));
    let of_first = all.lines().filter_map(|line| line.strip_prefix("gpu0/gi"));
    let mut minors = of_first.filter_map(|line| line.rsplit(' ').next()?.parse().ok());
    let foreign = minors.find(|minor| caps.iter().all(|(_, own)| own != minor));
    (caps[0].0, foreign.expect("another instance's capability"))
}

/// Asserts that systemd allows the scope of a container the devices of its slice. runc tells systemd of
/// each; crun 1.21 names the whole major for a minor of 0, and its own program alone holds the rest.
#[track_caller]
pub fn systemd_knows_the_rules(node: &Node, scope: &str, gpu: &str) {
    let shown = node.ok(&format!(
        "systemctl show --property=DevicePolicy,DeviceAllow {scope}"
    ));
    has(&shown, "DevicePolicy=strict");
    has(&shown, &format!("DeviceAllow={gpu} "));
    assert!(!shown.contains("DeviceAllow=/dev/char/195:1 "), "{shown}");
}
