//! Limits the memory of a container's share in the driver, before the first process of its image runs.

use crate::context::LeaseContext;
use crate::error::{Context, Error, Result, printable};
use crate::limit;
use crate::model::{LeaseId, Level};
use crate::store::Resource;

/// Limits the cgroup of a container's first process to the share of its lease.
///
/// # Errors
/// The lease is not this container's share at the level `driver`, or the limit cannot be set and read back.
pub(crate) fn limit_memory(
    context: &LeaseContext<'_>,
    lease: &LeaseId,
    (container, pid): (&str, i32),
) -> Result<()> {
    let shown = printable(container);
    let what = || format!("limit the GPU memory of container {shown}");
    let held = context.store.get(lease).context(what)?;
    let held = held
        .filter(|held| {
            held.lease.holder.name() == container && held.lease.boot_id == context.boot_id
        })
        .ok_or_else(|| Error::new(format!("lease {lease} is not this container's")))
        .context(what)?;
    let (Resource::Gpu(gpu), Some(share)) = (&held.instance.resource, held.lease.share()) else {
        return Err(Error::new(format!("lease {lease} is no share of a GPU"))).context(what);
    };
    if gpu.level != Some(Level::Driver) {
        return Err(Error::new(format!(
            "lease {lease} is not at the level driver"
        )))
        .context(what);
    }
    limit::set(&context.driver(), &gpu.gpu_uuid, (pid, share.memory_mib))
        .map_err(|e| match e.advice() {
            Some(_) => e,
            None => {
                e.hint("set sharing.enforcement = [\"mps\"], so that an MPS daemon holds the limit")
            }
        })
        .context(what)?;
    tracing::info!(
        lease = lease.as_str(),
        container,
        "the driver limits its memory to {}Mi of GPU {}",
        share.memory_mib,
        gpu.gpu_index
    );
    Ok(())
}
