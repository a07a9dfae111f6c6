//! The facts that become known of a container while it is made.

use super::liveness;
use crate::context::LeaseContext;
use crate::error::Result;
use crate::model::Process;
use crate::process;
use crate::store::{Lease, State};

/// On record before the low-level runtime does anything: it goes on when we are killed.
pub(crate) fn started(
    context: &LeaseContext<'_>,
    id: &str,
    runtime: Process,
) -> Result<Option<Lease>> {
    context
        .store
        .lock("create")?
        .update(id, |l| l.runtime_process = Some(runtime))
}

/// For a low-level runtime that stays as long as its container: whether that was seen to run, or
/// there is nothing to wait for any more.
pub(crate) fn ready_if_started(context: &LeaseContext<'_>, id: &str) -> Result<bool> {
    let Some(lease) = context.store.get(id)? else {
        return Ok(true);
    };
    let init = liveness::recorded_init(&lease.holder.key).ok().flatten();
    if init.is_some_and(|init| process::is_alive(&init)) {
        ready(context, id)?;
        return Ok(true);
    }
    Ok(false)
}

/// For those who collect: the front that was to see its container run was killed, and so nobody
/// else puts that on record.
pub(super) fn ready_without_its_front(context: &LeaseContext<'_>, lease: &Lease) -> Result<()> {
    let is_left = lease.state == State::Creating
        && lease.runtime_process.is_some()
        && liveness::creator_is_dead(lease);
    if is_left {
        ready_if_started(context, &lease.id)?;
    }
    Ok(())
}

/// The container exists. A lease that has gone meanwhile (the container ended at once and its
/// hook ran) stays gone.
pub(crate) fn ready(context: &LeaseContext<'_>, id: &str) -> Result<Option<Lease>> {
    let ledger = context.store.lock("create")?;
    let Some(lease) = context.store.get(id)? else {
        return Ok(None);
    };
    if lease.state != State::Creating {
        return Ok(Some(lease));
    }
    let init = liveness::recorded_init(&lease.holder.key).ok().flatten();
    // Which of its cgroups are not the engine's too, only its front can tell.
    let is_front = lease.creator == process::current();
    let exact = init.filter(|_| is_front).map(|init| own_cgroups(init.pid));
    ledger.update(id, |l| {
        l.state = State::Ready;
        l.init = init;
        if let Some(exact) = exact.filter(|c| !c.is_empty()) {
            l.cgroups = exact;
        }
    })
}

/// The cgroups of a container's init that are not ours too: from then on known exactly, not by name.
fn own_cgroups(init: i32) -> Vec<String> {
    let ours = process::cgroups(std::process::id() as i32);
    process::cgroups(init)
        .into_iter()
        .filter(|c| c != "/" && !ours.contains(c))
        .collect()
}
