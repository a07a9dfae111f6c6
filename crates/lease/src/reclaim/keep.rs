//! Keeps a released slice for the next create that asks for its profile. Its instance stays without a lease.
//! So no late hook or delete of its last container finds it.

use super::destroy;
use crate::context::LeaseContext;
use crate::error::Result;
use crate::model::Timestamp;
use crate::store::{Held, InstanceState};
use std::time::{Instant, SystemTime};

/// Keeps the instance of a *releasing* lease, and removes the lease. Returns false if the configuration or
/// the state of the instance does not allow that.
pub(super) fn keep_idle(context: &LeaseContext<'_>, held: &Held, begun: Instant) -> Result<bool> {
    let Some(slice) = held.instance.slice() else {
        return Ok(false);
    };
    // A slice of seats ends with the last of them.
    let is_whole =
        slice.seats.is_none() && slice.compute_instance.is_some() && slice.mig_uuid.is_some();
    let keeps = !context.config.keep_idle.is_zero()
        && held.lease.boot_id == context.boot_id
        && !held.instance.outlives_leases()
        && is_whole;
    if !keeps {
        return Ok(false);
    }
    // The lease is *releasing*, so another process that collects may be destroying its instance now.
    let why = format!("release of {}", held.lease.holder.name());
    let _gpu = context.store.lock_gpu(&slice.gpu_uuid, &why)?;
    let ledger = context.store.lock("release")?;
    let Some(held) = context.store.held_now(held)? else {
        // Another process released the lease and removed it.
        return Ok(true);
    };
    // A layout may have taken it over meanwhile.
    if held.instance.outlives_leases() {
        return Ok(false);
    }
    let is_emptied = held.instance.slice().is_none_or(|s| s.emptied);
    if held.instance.attempt().is_some() || is_emptied {
        return Ok(false);
    }
    let has_others = destroy::has_other_users(context, &held.instance, Some(&held.lease))?;
    if !has_others {
        // After a kill in between, the next release of the lease destroys the instance.
        let since = Timestamp::millis(SystemTime::now());
        ledger.update_instance(&held.instance, |i| i.state = InstanceState::Idle { since })?;
    }
    let released = ledger.remove_lease(&held.lease)?;
    drop(ledger);
    if released {
        context
            .observer
            .released(&held.lease, &held.instance, begun);
    }
    if has_others {
        return Ok(true);
    }
    tracing::info!(instance = held.instance.id.as_str(), "{slice} is kept idle");
    Ok(true)
}
