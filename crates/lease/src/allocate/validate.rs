//! Validates an existing slice once a lease holds it: an idle one, or an administrator's.

use crate::context::LeaseContext;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::reclaim;
use crate::store::Lease;

/// Returns the lease of a slice that is still what it was and that nobody uses; none, and why is logged,
/// where that is not so or cannot be found out.
pub(super) fn validate(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    lease: &Lease,
) -> Option<Lease> {
    let wrong = match defect(context, driver, lease) {
        Ok(Ok(lease)) => return Some(lease),
        Ok(Err(why)) => why,
        Err(e) => e.line(),
    };
    tracing::warn!(lease = lease.id, "not handed out: {wrong}");
    None
}

/// Returns why a slice cannot be handed out; else its lease, with the UUID.
fn defect(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    lease: &Lease,
) -> Result<std::result::Result<Lease, String>> {
    let slice = &lease.slice;
    let (Some(gi), Some(ci)) = (slice.gpu_instance, slice.compute_instance) else {
        return Err(Error::new("the lease has no instance"));
    };
    let Some(instance) = reclaim::locate(driver, slice)? else {
        return Ok(Err("its instance is gone, or another one".to_owned()));
    };
    if instance.compute_instances.iter().map(|c| c.id).ne([ci]) {
        return Ok(Err("it has other compute instances than ours".to_owned()));
    }
    let computing = driver.processes(&slice.gpu_uuid, gi, ci)?;
    if let Some(pid) = computing.first() {
        return Ok(Err(format!("process {pid} computes on it")));
    }
    let holders = reclaim::holders(context, lease);
    if let Some((pid, name)) = holders.seen.first() {
        return Ok(Err(format!("process {pid} {name} has it open")));
    }
    if let Some(why) = holders.unseen {
        return Ok(Err(format!(
            "whether anybody has it open cannot be seen: {why}"
        )));
    }
    if slice.mig_uuid.is_some() && lease.shared_in.is_none() {
        return Ok(Ok(lease.clone()));
    }
    let uuid = driver.mig_uuid(&slice.gpu_uuid, gi, ci)?;
    let lease = context.record(lease, |l| l.slice.mig_uuid = Some(uuid))?;
    Ok(Ok(lease))
}
