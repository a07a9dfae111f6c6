//! The memory limit of a container in the driver, on the container's own cgroup. Drivers from release 615 on have it,
//! and it needs cgroup v2.
//!
//! The driver keeps the limit itself, or through the kernel's controller `dmem`. A cgroup has that controller's files
//! only if every cgroup above hands the controller down.

mod cgroup;
mod dmem;

use crate::error::{Error, Result};
use crate::gpu::{DriverError, FUNCTION_NOT_FOUND, LimitMemory, MemoryLimits, Queries};
use crate::gpu::{NOT_FOUND, NOT_SUPPORTED};
use crate::model::{ChangedLimit, GpuUuid};
use crate::process;
use crate::store::Held;
use std::path::Path;

/// The place of the hierarchy, which the driver expects.
const ROOT: &str = "/sys/fs/cgroup";

/// The hard limit of a cgroup without limits, in MiB.
const NO_LIMIT: u64 = u64::MAX >> 20;

/// The way out where the driver or the kernel cannot limit a cgroup.
const HINT: &str = "set sharing.enforcement = [\"mps\"], so that an MPS daemon holds the limit";

/// Returns the reason for which this machine has no such limits, if there is one.
pub(crate) fn machine_obstacle() -> Option<String> {
    let is_v2 = cgroup::is_v2(Path::new(ROOT));
    (!is_v2).then(|| format!("{ROOT} is not cgroup v2"))
}

/// Returns the reason for which a GPU has no such limits, if there is one.
///
/// # Errors
/// The driver does not answer.
pub(crate) fn gpu_obstacle(
    driver: &impl Queries,
    gpu: &GpuUuid,
) -> std::result::Result<Option<String>, DriverError> {
    match driver.memory_limits(gpu, Path::new(ROOT)) {
        Ok(_) => Ok(None),
        Err(e) => match e.code() {
            Some(FUNCTION_NOT_FOUND) => Ok(Some(
                "its driver has no memory limits by cgroup, which came with release 615".to_owned(),
            )),
            // The root has no limits of its own.
            Some(NOT_SUPPORTED | NOT_FOUND) => Ok(None),
            _ => Err(e),
        },
    }
}

/// Limits the memory of a process's cgroup on a GPU, and confirms the limit with the driver.
///
/// # Errors
/// The process has no cgroup of its own, the kernel or the driver refuses a step, or the driver has another limit
/// afterwards.
pub(crate) fn set(
    driver: &impl LimitMemory,
    gpu: &GpuUuid,
    (pid, memory_mib): (i32, u64),
) -> Result<()> {
    let root = Path::new(ROOT);
    let cgroup = cgroup::of(root, pid)?;
    dmem::provide(root, &cgroup).map_err(|e| e.hint(HINT))?;
    let limits = MemoryLimits {
        soft: 0,
        hard: memory_mib << 20,
    };
    driver
        .set_memory_limits(gpu, &cgroup, limits)
        .map_err(|e| refused(e, &cgroup))?;
    let found = driver.memory_limits(gpu, &cgroup);
    let found = found.map_err(|e| refused(e, &cgroup))?;
    if found != limits {
        let MemoryLimits { soft, hard } = found;
        let (shown, wanted) = (cgroup.display(), limits.hard);
        return Err(Error::new(format!(
            "the driver has soft {soft} and hard {hard} for cgroup {shown} after it took 0 and {wanted}"
        ))
        .hint(HINT));
    }
    Ok(())
}

/// Returns the limit of a share's container, if it is not that of the share. A container without a process has none
/// that matters.
///
/// # Errors
/// The container's cgroup cannot be found, or the driver does not answer.
pub(crate) fn changed(driver: &impl Queries, held: &Held) -> Result<Option<ChangedLimit>> {
    let (Some(init), Some(share)) = (held.lease.init, held.lease.share()) else {
        return Ok(None);
    };
    let found = cgroup::of(Path::new(ROOT), init.pid).and_then(|cgroup| {
        match driver.memory_limits(held.instance.resource.gpu_uuid(), &cgroup) {
            Ok(limits) => Ok(limits.hard >> 20),
            // The driver keeps no limit for the cgroup.
            Err(e) if matches!(e.code(), Some(NOT_SUPPORTED | NOT_FOUND)) => Ok(NO_LIMIT),
            Err(e) => Err(e.into()),
        }
    });
    let told_mib = match found {
        Ok(mib) => mib,
        Err(_) if !process::is_alive(&init) => return Ok(None),
        Err(e) => return Err(e),
    };
    Ok((told_mib != share.memory_mib).then_some(ChangedLimit {
        told_mib: if told_mib >= NO_LIMIT { 0 } else { told_mib },
        share_mib: share.memory_mib,
    }))
}

/// Returns the error for an answer of the driver, with the way out where that is another level.
fn refused(e: DriverError, cgroup: &Path) -> Error {
    match e.code() {
        Some(NOT_FOUND) => Error::new(format!(
            "cgroup {} has no dmem files, because a cgroup above does not hand dmem down",
            cgroup.display()
        ))
        .caused_by(e)
        .hint(HINT),
        Some(NOT_SUPPORTED | FUNCTION_NOT_FOUND) => Error::from(e).hint(HINT),
        _ => e.into(),
    }
}
