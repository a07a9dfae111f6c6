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
use crate::model::GpuUuid;
use std::path::Path;

/// The place of the hierarchy, which the driver expects.
const ROOT: &str = "/sys/fs/cgroup";

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
