//! The MPS daemons of shares, as `migctl list` shows them.

use super::list::holder_name;
use super::output;
use runmig_lease::process;
use runmig_lease::store::{Entry, InstanceState, LeaseState};
use runmig_lease::{DaemonView, unseen};

/// Returns the daemon of an entry, if it should have one.
pub fn of(entry: &Entry) -> Option<DaemonView> {
    let daemon = entry.instance().resource.daemon()?;
    let is_visible = entry.lease().is_some_and(|lease| unseen(lease).is_none());
    Some(DaemonView {
        pid: daemon.process.map(|p| p.pid),
        alive: daemon
            .process
            .filter(|_| is_visible)
            .map(|p| process::is_alive(&p)),
        restarts: Some(daemon.restarts),
    })
}

/// Says whether the container of an entry goes on without its daemon.
pub fn has_ended(entry: &Entry) -> bool {
    let is_given = entry.lease().is_some_and(|l| l.state == LeaseState::Ready);
    let is_whole = entry.instance().state == InstanceState::Ready;
    is_given && of(entry).is_some_and(|daemon| !is_whole || daemon.alive == Some(false))
}

/// Names each container whose daemon has ended.
pub fn tell(entries: &[Entry]) {
    let leases = entries.iter().filter(|e| has_ended(e));
    for lease in leases.filter_map(Entry::lease) {
        output::eprint(&format!(
            "the MPS daemon of container {} has ended, so its new processes have no memory limit; hint: migctl gc \
             restarts it",
            holder_name(lease)
        ));
    }
}
