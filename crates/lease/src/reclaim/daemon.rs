//! The MPS daemon of a lease: its start, and its end, which comes before that of the lease.

use crate::error::{Error, Result};
use crate::leases::Leases;
use crate::model::LeaseId;
use crate::mps::{self, Home, Order, Program};
use crate::process::{self, Holders, Host};
use crate::store::{Held, Lease, MpsDaemon};
use std::path::PathBuf;

/// Returns the names of the daemon of a lease.
pub(crate) fn home(context: &Leases<'_>, lease: &LeaseId) -> Home {
    Home::of(&context.config.state_dir, lease)
}

impl Leases<'_> {
    /// Returns the directory with the socket of a lease's MPS daemon, which the container gets at `/tmp/nvidia-mps`.
    /// Returns none without a daemon.
    pub fn door(&self, held: &Held) -> Option<PathBuf> {
        held.lease.daemon()?;
        Some(home(self, &held.lease.id).door())
    }
}

/// Starts the daemon of a lease, which has been restarted so many times. Its process is on record before it begins.
pub(crate) fn start(
    context: &Leases<'_>,
    held: &Held,
    program: &Program,
    restarts: u32,
) -> Result<Held> {
    let share = { held.lease.share() }.ok_or_else(|| Error::new("the lease has no share"))?;
    let device = held.instance.resource.device();
    let order = Order {
        home: &home(context, &held.lease.id),
        program,
        device: device.ok_or_else(|| Error::new("the slice of the seat has no UUID on record"))?,
        limit_mib: share.memory_mib,
    };
    let record = |change: &dyn Fn(&mut MpsDaemon)| {
        context.record_lease(held, |lease| lease.change_daemon(change))
    };
    mps::start(&order, |process| {
        record(&|daemon| daemon.process = Some(process)).map(drop)
    })?;
    record(&|daemon| (daemon.ready, daemon.restarts) = (true, restarts))
}

/// Ends the daemon of a lease, if it has one, with its server, its cgroup and its directories. Returns what does not end in
/// time.
pub(super) fn end(context: &Leases<'_>, lease: &Lease) -> Result<Option<String>> {
    let ends = lease
        .daemon()
        .map(|_| mps::end(&home(context, &lease.id), false));
    Ok(ends.transpose()?.flatten())
}

/// Ends a daemon of which only the id of its lease is known.
pub(crate) fn remove_home(context: &Leases<'_>, lease: &LeaseId) {
    match mps::end(&home(context, lease), false) {
        Ok(None) => {}
        Ok(Some(left)) => tracing::warn!("{left} of MPS daemon {lease} does not end"),
        Err(e) => tracing::warn!("{}", e.line()),
    }
}

/// Returns whether a daemon holds its limit. A restart that was killed half way leaves one that is not *ready*, perhaps without
/// its limit.
pub(super) fn lives(daemon: &MpsDaemon) -> bool {
    daemon.ready && daemon.process.is_some_and(|p| process::is_alive(&p))
}

/// Returns whether something of the daemon of a lease is left. A doubt counts as something.
pub(super) fn is_left(context: &Leases<'_>, lease: &Lease) -> bool {
    let is_there = || mps::is_there(&home(context, &lease.id));
    lease.daemon().is_some() && is_there().unwrap_or(true)
}

/// Records that a daemon does not end. As for an instance, a record that cannot be written does not matter.
pub(super) fn mark(
    context: &Leases<'_>,
    lease: &Lease,
    change: impl FnOnce(&mut MpsDaemon),
) -> Result<()> {
    let ledger = context.store.lock("release")?;
    if let Err(e) = ledger.update_lease(lease, |l| l.change_daemon(change)) {
        tracing::warn!(lease = lease.id.as_str(), "{}", e.line());
    }
    Ok(())
}

/// Returns a process of the daemon of a lease.
pub(super) fn holders(lease: &Lease) -> Holders {
    match process::in_cgroup(&Host, &[Home::cgroup_path_of(&lease.id)]) {
        Ok(pid) => Holders::of(pid),
        Err(e) => Holders::unseen(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Level;
    use crate::reclaim::tests::{config, open, put};
    use crate::store::{Enforcement, Portion, Share};

    #[test]
    fn container_gets_the_socket_of_its_daemon_alone() {
        let (_dir, config) = config("");
        let leases = open(&config);
        for (level, has_door) in [(Level::Mps, true), (Level::None, false)] {
            let held = put(&leases, level.name(), |lease| {
                lease.portion = Portion::Share(Share {
                    memory_mib: 1,
                    booked_mib: 1,
                    enforcement: Enforcement::new(level),
                });
            });
            let door = leases.door(&held);
            assert_eq!(door.is_some(), has_door, "{level}");
            let id = held.lease.id.as_str();
            assert!(
                door.is_none_or(|door| door.starts_with(&config.state_dir)
                    && door.to_string_lossy().contains(id))
            );
        }
    }
}
