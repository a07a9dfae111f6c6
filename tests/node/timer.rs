//! The timer that collects, as it is shipped; its intervals alone are shorter here.

use super::machine::Node;
use super::podman::{remove, run, state};
use super::slices::{ASK, STAYS, the_lease};

const DROP_IN: &str = "/run/systemd/system/runmig-gc.timer.d";

/// Has the timer run the service every three seconds until this is dropped.
pub struct Often<'a>(&'a Node);

impl Often<'_> {
    #[track_caller]
    pub fn new(node: &Node) -> Often<'_> {
        node.ok(&format!(
            "mkdir -p {DROP_IN}
             printf '[Timer]\\nOnActiveSec=1s\\nOnUnitInactiveSec=3s\\nRandomizedDelaySec=0\\nAccuracySec=100ms\\n' \\
                 >{DROP_IN}/often.conf
             systemctl daemon-reload
             systemctl restart runmig-gc.timer"
        ));
        Often(node)
    }

    /// Waits for the end of the service's next run.
    #[track_caller]
    pub fn has_run(&self) {
        let ended =
            "systemctl show --property=ExecMainExitTimestampMonotonic --value runmig-gc.service";
        let last = self.0.ok(ended);
        self.0.until(&format!("[ \"$({ended})\" != '{last}' ]"));
    }
}

/// Keeps the timer from running until the next `Often`.
#[track_caller]
pub fn stop(node: &Node) {
    node.ok("systemctl stop runmig-gc.timer runmig-gc.service");
}

#[track_caller]
pub fn last_run_succeeded(node: &Node) {
    let result = node.ok("systemctl show --property=Result --value runmig-gc.service");
    assert_eq!(result, "success");
}

impl Drop for Often<'_> {
    fn drop(&mut self) {
        self.0.run(&format!(
            "rm -r {DROP_IN}; systemctl daemon-reload; systemctl restart runmig-gc.timer"
        ));
    }
}

/// While nothing has a slice, the timer leaves no line in the journal: it would be one every five
/// minutes.
pub fn timer_without_slices_is_quiet(node: &Node) {
    let begun = node.ok("date +%s");
    Often::new(node).has_run();
    let journal = node.ok(&format!(
        "journalctl --since=@{begun} --quiet --no-pager --unit=runmig-gc.service"
    ));
    assert_eq!(journal, "");
    last_run_succeeded(node);
}

/// Kills the engine's monitor and the container at once, so that no process calls `delete`.
/// Failure: a kill of podman's monitor and the container at once, so podman never calls `delete`
pub fn collects_after_a_kill(node: &Node) {
    let lost = run(node, "runmig", ASK, STAYS);
    let (monitor, init) = (state(node, &lost, "ConmonPid"), state(node, &lost, "Pid"));
    stop(node);
    node.ok(&format!("kill -9 {monitor} {init}"));
    let stays = run(node, "runmig", ASK, STAYS);
    assert_eq!(node.leases().len(), 2);
    {
        let _often = Often::new(node);
        node.until(&format!("! migctl list -o json | grep -q {lost}"));
    }
    the_lease(node, &stays);
    assert_eq!(node.instances(), 1);
    last_run_succeeded(node);
    remove(node, &stays);
    // podman complains about its monitor, and says so once.
    node.run(&format!("podman rm --force --time=0 {lost}"));
    node.nothing_is_left();
}
