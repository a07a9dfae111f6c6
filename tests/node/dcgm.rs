//! The reload of dcgm-exporter by its units, as they are shipped.

use super::install::configure;
use super::machine::Node;
use super::podman::{remove, run};
use super::slices::{ASK, STAYS};

/// More starts than systemd allows a unit by default, in 10 seconds.
const BURST: usize = 8;
/// Starts take their time on an emulated node, so the default counts an hour here.
const SLOW: &str = "/run/systemd/system.conf.d/slow.conf";

/// A process by the exporter's name, which writes a line for each signal, and the path unit. Both end with this.
struct Reloads<'a>(&'a Node);

impl Reloads<'_> {
    #[track_caller]
    fn start(node: &Node) -> Reloads<'_> {
        node.ok(&configure("[dcgm]\nreload_every = \"5s\"\n"));
        let started = Reloads(node);
        node.ok(&format!(
            "mkdir -p $(dirname {SLOW})
             printf '[Manager]\\nDefaultStartLimitIntervalSec=1h\\n' >{SLOW}
             systemctl daemon-reexec
             rm -f /run/signals
             cp /bin/bash /run/dcgm-exporter
             systemd-run --quiet --collect --unit=exporter /run/dcgm-exporter -c \\
                 \"trap 'echo reload >>/run/signals' HUP; while :; do sleep 1000 & wait; done\"
             mkdir -p -m 700 /run/runmig
             systemctl start runmig-dcgm.path"
        ));
        started
    }
}

impl Drop for Reloads<'_> {
    fn drop(&mut self) {
        self.0.run(&format!(
            "systemctl stop runmig-dcgm.path runmig-dcgm.service exporter.service
             rm -f /run/signals /run/dcgm-exporter {SLOW}
             systemctl daemon-reexec
             {}",
            configure("")
        ));
    }
}

/// A change starts the service, which ends. One more than systemd's limit of starts would stop both units for good.
pub fn burst_stops_no_path_unit(node: &Node) {
    // There is a ledger then.
    let container = run(node, "runmig", ASK, STAYS);
    remove(node, &container);
    let _reloads = Reloads::start(node);
    // A reload spares a process of less than 10 s.
    node.until("[ $(ps -o etimes= -C dcgm-exporter) -gt 10 ]");
    let begun =
        "systemctl show --property=ExecMainStartTimestampMonotonic --value runmig-dcgm.service";
    // A change during a start is not seen, so each is made until it starts the service.
    node.ok(&format!(
        "for change in $(seq {BURST}); do
             before=$({begun})
             while [ \"$({begun})\" = \"$before\" ] && systemctl is-active --quiet runmig-dcgm.path; do
                 touch -c /run/runmig/ledger.json
             done
         done"
    ));
    assert_eq!(node.ok("systemctl is-active runmig-dcgm.path"), "active");
    let container = run(node, "runmig", ASK, STAYS);
    node.until("[ -s /run/signals ]");
    remove(node, &container);
    node.until("[ $(wc -l </run/signals) -ge 2 ]");
    let result = "systemctl show --property=Result --value";
    assert_eq!(node.ok(&format!("{result} runmig-dcgm.path")), "success");
    node.until(&format!(
        "[ \"$({result} runmig-dcgm.service)\" = success ]"
    ));
    node.nothing_is_left();
}
