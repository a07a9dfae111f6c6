//! The MPS daemons of shares, as `migctl list` shows them.

use super::list::holder_name;
use super::output;
use runmig_lease::process;
use runmig_lease::store::{Entry, Lease, LeaseState};
use runmig_lease::{DaemonView, unseen};

/// Returns the daemon of an entry, if it should have one.
pub fn of(entry: &Entry) -> Option<DaemonView> {
    let lease = entry.lease()?;
    let daemon = lease.daemon()?;
    let is_visible = unseen(lease).is_none();
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
    let lease = entry.lease().filter(|l| l.state == LeaseState::Ready);
    lease.and_then(Lease::daemon).is_some_and(|daemon| {
        !daemon.ready || of(entry).is_some_and(|daemon| daemon.alive == Some(false))
    })
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
