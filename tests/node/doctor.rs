//! `migctl doctor` about what only systemd knows: timers, and the synchronised clock.

use super::machine::Node;
use serde_json::Value;

/// Returns the outcome of a check, and its repair.
#[track_caller]
fn finding(node: &Node, id: &str) -> (String, String) {
    let said = node.run(&format!("migctl doctor --only={id} -o json"));
    let items: Value = said.ok().json()["items"].clone();
    let [item] = items.as_array().unwrap().as_slice() else {
        panic!("{id}: {items}")
    };
    let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(text("id"), id);
    (text("status"), text("repair"))
}

/// Asserts that a check warns, makes its repair, and asserts that it is content then.
#[track_caller]
fn repairs(node: &Node, id: &str, repair: &str) {
    assert_eq!(finding(node, id), ("warn".to_owned(), repair.to_owned()));
    node.ok(repair);
    assert_eq!(finding(node, id).0, "ok");
}

/// A unit whose service fails until this is dropped.
struct Failing<'a>(&'a Node);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.0.run(
            "rm -rf /run/systemd/system/runmig-gc.service.d; systemctl daemon-reload; systemctl start runmig-gc.service",
        );
    }
}

pub fn knows_timers_and_clock(node: &Node) {
    node.ok("systemctl start runmig-gc.service");
    assert_eq!(finding(node, "timers.gc").0, "ok");
    node.ok("systemctl stop runmig-gc.timer");
    repairs(node, "timers.gc", "systemctl enable --now runmig-gc.timer");
    {
        let _failing = Failing(node);
        node.ok("mkdir -p /run/systemd/system/runmig-gc.service.d
             printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' >/run/systemd/system/runmig-gc.service.d/fails.conf
             systemctl daemon-reload
             ! systemctl start runmig-gc.service");
        let why = "journalctl -u runmig-gc.service says why";
        let warned = ("warn".to_owned(), why.to_owned());
        assert_eq!(finding(node, "timers.gc"), warned);
    }
    assert_eq!(finding(node, "timers.gc").0, "ok");

    assert_eq!(finding(node, "timers.textfile").0, "skip");
    node.ok("systemctl enable --quiet runmig-textfile.timer");
    let start = "systemctl start runmig-textfile.timer";
    repairs(node, "timers.textfile", start);
    node.ok("systemctl disable --quiet --now runmig-textfile.timer");

    // The node has no network, and so no time server.
    let unknown = ("warn".to_owned(), "timedatectl set-ntp true".to_owned());
    assert_eq!(finding(node, "clock.synchronised"), unknown);
}
