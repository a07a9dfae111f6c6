//! The memory limit of a container in the driver, on the container's own cgroup. Drivers from release 615 on have it,
//! and it needs cgroup v2.
//!
//! The driver keeps the limit itself, or through the kernel's controller `dmem`. A cgroup has that controller's files
//! only if every cgroup above hands the controller down.

mod cgroup;
mod dmem;

use crate::error::{Error, Result};
use crate::gpu::{
    DriverError, FUNCTION_NOT_FOUND, MemoryLimits, NOT_FOUND, NOT_SUPPORTED, Queries, Session,
};
use crate::model::{ChangedLimit, GpuUuid};
use crate::process;
use crate::store::{Enforcement, Held, Limit, LimitedCgroup, Share};
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
    driver: &Session<'_>,
    gpu: &GpuUuid,
    pid: i32,
    memory_mib: u64,
) -> Result<LimitedCgroup> {
    let root = Path::new(ROOT);
    let found = cgroup::of(root, pid)?;
    let dir = cgroup::dir(root, &found);
    dmem::provide(root, &dir).map_err(|e| e.hint(HINT))?;
    set_on(driver, gpu, &dir, memory_mib)?;
    Ok(found)
}

fn set_on(driver: &Session<'_>, gpu: &GpuUuid, dir: &Path, memory_mib: u64) -> Result<()> {
    let limits = MemoryLimits {
        soft: 0,
        hard: memory_mib << 20,
    };
    driver
        .set_memory_limits(gpu, dir, limits)
        .map_err(|e| refused(e, dir))?;
    let found = driver.memory_limits(gpu, dir);
    let found = found.map_err(|e| refused(e, dir))?;
    if found != limits {
        let MemoryLimits { soft, hard } = found;
        let (shown, wanted) = (dir.display(), limits.hard);
        return Err(Error::new(format!(
            "the driver has soft {soft} and hard {hard} for cgroup {shown} after it took 0 and {wanted}"
        ))
        .hint(HINT));
    }
    Ok(())
}

/// Returns the limit of a share's container, if it is not that of the share. A container that has ended has none that
/// matters.
///
/// # Errors
/// The container has left the cgroup of its limit, or the driver does not answer.
pub(crate) fn changed(driver: &impl Queries, held: &Held) -> Result<Option<ChangedLimit>> {
    let Some(share) = held.lease.share() else {
        return Ok(None);
    };
    let changed = |told_mib| ChangedLimit {
        told_mib,
        share_mib: share.memory_mib,
    };
    let Enforcement::Driver(Some(Limit::Set(limited))) = &share.enforcement else {
        return Ok(Some(changed(0)));
    };
    let is_over = || held.lease.init.is_none_or(|init| !process::is_alive(&init));
    let dir = match cgroup::find(Path::new(ROOT), limited, held.lease.init.as_ref()) {
        Ok(dir) => dir,
        Err(_) if is_over() => return Ok(None),
        Err(e) => return Err(e),
    };
    let told_mib = match driver.memory_limits(held.instance.resource.gpu_uuid(), &dir) {
        Ok(limits) if limits.hard == u64::MAX => 0,
        // Less than 1 MiB is a limit too.
        Ok(limits) => (limits.hard >> 20).max(1),
        // The driver keeps no limit for the cgroup.
        Err(e) if matches!(e.code(), Some(NOT_SUPPORTED | NOT_FOUND)) => 0,
        Err(e) => return Err(e.into()),
    };
    let is_changed = told_mib != share.memory_mib && !is_over();
    Ok(is_changed.then(|| changed(told_mib)))
}

/// Sets the limit of a share's container again, on the cgroup that the hook found.
///
/// # Errors
/// The container has left that cgroup, or the driver does not take the limit.
pub(crate) fn set_back(driver: &Session<'_>, held: &Held) -> Result<()> {
    let Some(Share {
        memory_mib,
        enforcement: Enforcement::Driver(Some(Limit::Set(limited))),
        ..
    }) = held.lease.share()
    else {
        return Err(
            Error::new("no cgroup of the container is on record").hint("restart the container")
        );
    };
    let dir = cgroup::find(Path::new(ROOT), limited, held.lease.init.as_ref())?;
    let gpu = held.instance.resource.gpu_uuid();
    set_on(driver, gpu, &dir, *memory_mib)
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
