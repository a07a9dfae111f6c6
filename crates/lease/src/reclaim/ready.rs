//! Records the facts about a container that become known during its create.

use super::liveness;
use crate::context::LeaseContext;
use crate::error::Result;
use crate::model::Process;
use crate::process;
use crate::store::{Lease, LeaseState};

/// Records the low-level runtime before it does anything, because it goes on after a kill of runmig.
pub(crate) fn started(
    context: &LeaseContext<'_>,
    lease: &Lease,
    runtime: Process,
) -> Result<Option<Lease>> {
    let ledger = context.store.lock("create")?;
    ledger.update_lease(lease, |l| l.runtime_process = Some(runtime))
}

/// Returns whether the wait for a container is over: the container runs, or its lease is gone. It serves
/// low-level runtimes that stay as long as their container.
pub(crate) fn ready_if_started(context: &LeaseContext<'_>, lease: &Lease) -> Result<bool> {
    let Some(lease) = context.store.lease_now(lease)? else {
        return Ok(true);
    };
    let init = recorded_init(&lease);
    if init.is_some_and(|init| process::is_alive(&init)) {
        ready(context, &lease)?;
        return Ok(true);
    }
    Ok(false)
}

/// Records for a collection that a container runs. The front that had to record it was killed.
pub(super) fn ready_without_its_front(context: &LeaseContext<'_>, lease: &Lease) -> Result<()> {
    let is_left = lease.state == LeaseState::Pending
        && lease.runtime_process.is_some()
        && liveness::operation_is_over(&context.store, lease);
    if is_left {
        ready_if_started(context, lease)?;
    }
    Ok(())
}

/// Records that the container exists. A lease that is gone stays gone: the container ended at once and its
/// hook ran.
pub(crate) fn ready(context: &LeaseContext<'_>, lease: &Lease) -> Result<Option<Lease>> {
    let ledger = context.store.lock("create")?;
    let Some(lease) = context.store.lease_now(lease)? else {
        return Ok(None);
    };
    if lease.state != LeaseState::Pending {
        return Ok(Some(lease));
    }
    let init = recorded_init(&lease);
    // Only the front can tell which of the container's cgroups are not the engine's too.
    let is_front = lease.creator == process::current();
    let exact = init.filter(|_| is_front).map(|init| own_cgroups(init.pid));
    ledger.update_lease(&lease, |l| {
        l.state = LeaseState::Ready;
        l.init = init;
        if let Some(exact) = exact.filter(|c| !c.is_empty()) {
            l.cgroups = exact;
        }
    })
}

/// Returns the init that the low-level runtime of a container recorded.
fn recorded_init(lease: &Lease) -> Option<Process> {
    let init = liveness::recorded_init(&lease.container()?.key);
    init.ok().flatten()
}

/// Returns the cgroups of a container's init that this process does not share. From then on the record has
/// exact paths instead of names.
pub(crate) fn own_cgroups(init: i32) -> Vec<String> {
    let ours = process::cgroups(std::process::id() as i32);
    process::cgroups(init)
        .into_iter()
        .filter(|c| c != "/" && !ours.contains(c))
        .collect()
}
