//! Keeps a released slice for the next create that asks for its profile. The slice gets a lease of its own
//! without a container. So no late hook or delete of its last container finds it.

use super::destroy;
use crate::context::LeaseContext;
use crate::draft;
use crate::error::Result;
use crate::store::Lease;
use std::time::SystemTime;

/// Keeps the slice of a *releasing* lease: a lease without a container replaces it. Returns false if the
/// configuration or the slice's state does not allow that.
pub(super) fn keep_idle(context: &LeaseContext<'_>, lease: &Lease) -> Result<bool> {
    let slice = &lease.slice;
    let is_whole = slice.compute_instance.is_some() && slice.mig_uuid.is_some();
    let keeps = !context.config.keep_idle.is_zero()
        && lease.boot_id == context.boot_id
        && !lease.adopted
        && is_whole;
    if !keeps {
        return Ok(false);
    }
    let idle = Lease {
        idle_since: Some(humantime::format_rfc3339_millis(SystemTime::now()).to_string()),
        ..draft::of_nobody(context, slice.clone())?
    };
    // The lease is *releasing*, so another process that collects may be destroying its instance now.
    let why = format!("release of {}", lease.holder.key.id);
    let _gpu = context.store.lock_gpu(&slice.gpu_uuid, &why)?;
    let ledger = context.store.lock("release")?;
    let Some(lease) = context.store.get(&lease.id)? else {
        // Another process released the lease and removed it.
        return Ok(true);
    };
    if lease.attempt.is_some() || lease.slice.emptied {
        return Ok(false);
    }
    if destroy::has_other_leases(context, &lease)? {
        ledger.remove(&lease)?;
        return Ok(true);
    }
    ledger.replace(&lease, &idle)?;
    tracing::info!(lease = idle.id, "{slice} is kept idle");
    Ok(true)
}
