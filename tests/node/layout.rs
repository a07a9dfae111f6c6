//! The layout of the machine, which its unit applies after a boot and before the engines start.

use super::install::{CONFIGURE_CRUN, configure};
use super::machine::Node;
use testkit::has;

const FILE: &str = "/etc/runmig/layouts.yaml";
const UNIT: &str = "runmig-layout.service";

/// A layout of the machine, which ends with this.
pub struct Layout<'a>(&'a Node);

impl Layout<'_> {
    /// Names a layout with one instance, and enables its unit. No GPU changes before the next boot.
    #[track_caller]
    pub fn enable(node: &Node) -> Layout<'_> {
        node.ok(&format!(
            "cat >{FILE} <<'LAYOUT'
version: v1
mig-configs:
  node:
  - {{devices: all, mig-enabled: true, mig-devices: {{3g.40gb: 1}}}}
  empty:
  - {{devices: all, mig-enabled: true, mig-devices: {{}}}}
LAYOUT
             {configuration}
             {CONFIGURE_CRUN}
             systemctl enable --quiet {UNIT}",
            configuration = name("node"),
        ));
        Layout(node)
    }

    /// Asserts that the unit ended before these units started.
    #[track_caller]
    pub fn came_before(&self, units: &[String]) {
        let moment = |event: &str, unit: &str| -> u64 {
            let show = format!("systemctl show --property={event} --value {unit}");
            self.0.ok(&show).parse().unwrap()
        };
        let end = moment("ExecMainExitTimestampMonotonic", UNIT);
        assert!(end > 0);
        for unit in units {
            let start = moment("ExecMainStartTimestampMonotonic", unit);
            let is_after = start >= end;
            assert!(is_after, "{unit} started at {start}, {UNIT} ended at {end}");
        }
    }

    /// Asserts that the unit succeeded.
    #[track_caller]
    pub fn is_in_place(&self) {
        assert_eq!(self.0.ok(&format!("systemctl is-active {UNIT}")), "active");
        self.is_on_record();
    }

    /// Asserts that the instance of the layout is on record, and no other.
    #[track_caller]
    pub fn is_on_record(&self) {
        let mut layouts = self.0.leases();
        layouts.retain(|item| item["state"] == "layout");
        assert_eq!(layouts.len(), 1, "{layouts:?}");
        assert_eq!(layouts[0]["profile"], "3g.40gb");
        assert_eq!(layouts[0]["layout"], "node");
    }

    /// Asserts that a layout which does not exist leaves a failed unit that says so.
    #[track_caller]
    pub fn failure_names_cause(&self) {
        self.0.ok(&name("gone"));
        let said = self.0.run(&format!("systemctl restart {UNIT}"));
        assert!(!said.status.success(), "{said:?}");
        let state = self.0.run(&format!("systemctl is-failed {UNIT}"));
        assert_eq!(state.stdout.trim(), "failed");
        let status = format!("systemctl status --no-pager --full {UNIT}");
        let status = self.0.run(&status);
        let cause = format!("cannot select a configuration of {FILE}: ");
        has(&status.stdout, &cause);
        has(&status.stdout, "gone");
    }
}

impl Drop for Layout<'_> {
    fn drop(&mut self) {
        self.0.run(&format!(
            "migctl apply -f {FILE} -c empty
             systemctl disable --quiet {UNIT}; systemctl stop {UNIT}; systemctl reset-failed {UNIT}
             rm {FILE}
             {configuration}
             {CONFIGURE_CRUN}",
            configuration = configure(""),
        ));
    }
}

/// A command that writes the configuration with the name of a layout.
fn name(layout: &str) -> String {
    configure(&format!(
        "[layout]\nfile = \"{FILE}\"\nconfig = \"{layout}\"\n"
    ))
}
