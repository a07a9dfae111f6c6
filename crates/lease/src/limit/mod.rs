//! The memory limit of a container in the driver, on the container's own cgroup. Drivers from release 615 on have it,
//! and it needs cgroup v2.
//!
//! The driver keeps the limit itself, or through the kernel's controller `dmem`. A cgroup has that controller's files
//! only if every cgroup above hands the controller down.

mod cgroup;
mod dmem;

use crate::error::{Error, Result};
use crate::gpu::{
    DriverError, FUNCTION_NOT_FOUND, LimitMemory, MemoryLimits, NOT_FOUND, NOT_SUPPORTED, Queries,
    Reason,
};
use crate::model::GpuUuid;
use std::path::Path;

/// The place of the hierarchy, which the driver expects.
const ROOT: &str = "/sys/fs/cgroup";

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
    let lacks = "its driver has no memory limits by cgroup, which came with release 615";
    match driver.memory_limits(gpu, Path::new(ROOT)) {
        Ok(_) => Ok(None),
        Err(e) => match &e.reason {
            Reason::Library(_) | Reason::Code(FUNCTION_NOT_FOUND) => Ok(Some(lacks.to_owned())),
            // The root has no limits of its own.
            Reason::Code(NOT_SUPPORTED | NOT_FOUND) => Ok(None),
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
    let shown = cgroup.display();
    dmem::provide(root, &cgroup)?;
    let limits = MemoryLimits {
        soft: 0,
        hard: memory_mib << 20,
    };
    driver.set_memory_limits(gpu, &cgroup, limits)?;
    let found = driver.memory_limits(gpu, &cgroup)?;
    if found != limits {
        let MemoryLimits { soft, hard } = found;
        return Err(Error::new(format!(
            "the driver has soft {soft} and hard {hard} for cgroup {shown} after it took 0 and {}",
            limits.hard
        )));
    }
    Ok(())
}
