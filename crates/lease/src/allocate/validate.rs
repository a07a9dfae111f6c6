//! Validates an existing slice once a lease holds it: an idle one, or an administrator's.

use crate::context::LeaseContext;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::reclaim;
use crate::store::{Held, InstanceState};

/// Returns the lease of a slice that is unchanged and unused. Otherwise, and if that cannot be found out,
/// logs the reason and returns none.
pub(super) fn validate(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    held: &Held,
) -> Option<Held> {
    let wrong = match defect(context, driver, held) {
        Ok(Ok(held)) => return Some(held),
        Ok(Err(why)) => why,
        Err(e) => e.line(),
    };
    tracing::warn!(lease = held.lease.id.as_str(), "not handed out: {wrong}");
    None
}

/// Returns why a slice cannot be handed out; else its lease, with the UUID.
fn defect(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    held: &Held,
) -> Result<std::result::Result<Held, String>> {
    let slice = held.instance.slice();
    let ids = slice.and_then(|s| Some((s, s.gpu_instance?, s.compute_instance?)));
    let Some((slice, gi, ci)) = ids else {
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
    let holders = reclaim::holders(context, &held.instance);
    if let Some((pid, name)) = holders.seen.first() {
        return Ok(Err(format!("process {pid} {name} has it open")));
    }
    if let Some(why) = holders.unseen {
        return Ok(Err(format!(
            "whether anybody has it open cannot be seen: {why}"
        )));
    }
    let uuid = match &slice.mig_uuid {
        Some(uuid) => uuid.clone(),
        None => driver.mig_uuid(&slice.gpu_uuid, gi, ci)?,
    };
    // From now on the other containers of its pod may share it.
    let held = context.record(held, |i| {
        i.change_slice(|s| s.mig_uuid = Some(uuid));
        i.state = InstanceState::Ready;
    })?;
    Ok(Ok(held))
}
