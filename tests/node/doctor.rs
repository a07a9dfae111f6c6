//! `migctl doctor` about what only systemd knows: the timer that collects.

use super::machine::Node;
use serde_json::Value;

/// Returns the outcome of the check, and its repair.
#[track_caller]
fn finding(node: &Node) -> (String, String) {
    let said = node.run("migctl doctor --only=host.gc -o json");
    let items: Value = said.ok().json()["items"].clone();
    let [item] = items.as_array().unwrap().as_slice() else {
        panic!("{items}")
    };
    let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("repair"))
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

pub fn knows_the_timer(node: &Node) {
    node.ok("systemctl start runmig-gc.service");
    assert_eq!(finding(node).0, "ok");
    node.ok("systemctl stop runmig-gc.timer");
    let repair = "systemctl enable --now runmig-gc.timer";
    assert_eq!(finding(node), ("warn".to_owned(), repair.to_owned()));
    node.ok(repair);
    assert_eq!(finding(node).0, "ok");
    {
        let _failing = Failing(node);
        node.ok("mkdir -p /run/systemd/system/runmig-gc.service.d
             printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' >/run/systemd/system/runmig-gc.service.d/fails.conf
             systemctl daemon-reload
             ! systemctl start runmig-gc.service");
        let why = "journalctl -u runmig-gc.service says why";
        assert_eq!(finding(node), ("warn".to_owned(), why.to_owned()));
    }
    assert_eq!(finding(node).0, "ok");
}
