//! Memory limits by cgroup.

use std::io;
use std::path::Path;

use super::guard::Call;
use super::handle::{Device, Handle};
use super::nvml;
use super::pointers::{Out, Text};
use super::types::{GetMemoryLimits, SetMemoryLimits};
use crate::cgroups::Cgroup;
use crate::engine::{
    Code, LimitBackend, MEMORY_LIMITS_SINCE, Machine, MemoryLimit, Mode, UNLIMITED,
};
use crate::holders;

/// Refuses MIG devices, and GPUs in MIG mode.
fn check_device(machine: &Machine, device: Handle) -> Result<(), Code> {
    match device.device(machine)? {
        Device::Gpu(gpu) if gpu.mode == Mode::Off => Ok(()),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

/// Returns the cgroup that a client names, if it can have limits.
fn cgroup(call: &Call, machine: &Machine, name_space: Text) -> Result<Cgroup, Code> {
    let path = name_space.get()?;
    if !Path::new(&path).is_absolute() {
        return Err(Code::INVALID_ARGUMENT);
    }
    let found = Cgroup::find(Path::new(&path)).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Code::NO_PERMISSION,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Code::NOT_FOUND,
        _ => Code::UNKNOWN,
    })?;
    let cgroup = found.filter(|c| !c.is_root()).ok_or(Code::NOT_SUPPORTED)?;
    let has_files = match machine.limit_backend {
        LimitBackend::Dmem => cgroup.has_dmem_files(call.dir()?),
        LimitBackend::Misc => true,
    };
    has_files.then_some(cgroup).ok_or(Code::NOT_FOUND)
}

nvml! {
    fn nvmlDeviceSetMemoryLimits_v1(call, device: Handle, limits: Out<SetMemoryLimits>) {
        call.since_branch(MEMORY_LIMITS_SINCE)?;
        let SetMemoryLimits { name_space, soft_limit: soft, hard_limit: hard } = limits.get()?;
        if soft > hard {
            return Err(Code::INVALID_ARGUMENT);
        }
        let gpu = device.gpu_index();
        call.change(gpu, |machine, _| {
            check_device(machine, device)?;
            let cgroup = cgroup(call, machine, name_space)?;
            machine.memory_limits.retain(|l| !cgroup.is_gone(&l.cgroup, l.inode));
            let Cgroup { path: cgroup, inode, .. } = cgroup;
            machine.set_memory_limit(MemoryLimit { gpu, cgroup, inode, soft, hard });
            Ok(())
        })
    }

    // The driver's own limits have no answer for a cgroup without one.
    fn nvmlDeviceGetMemoryLimits_v1(call, device: Handle, limits: Out<GetMemoryLimits>) {
        call.since_branch(MEMORY_LIMITS_SINCE)?;
        let GetMemoryLimits { name_space, .. } = limits.get()?;
        let machine = call.machine()?;
        check_device(&machine, device)?;
        let cgroup = cgroup(call, &machine, name_space)?;
        let gpu = device.gpu_index();
        let (soft_limit, hard_limit) = match machine.memory_limit(gpu, cgroup.inode) {
            Some(limit) => (limit.soft, limit.hard),
            None if machine.limit_backend == LimitBackend::Misc => return Err(Code::NOT_SUPPORTED),
            None => (0, UNLIMITED),
        };
        let current_used = holders::used_in_cgroup(call.dir()?, &machine, gpu, cgroup.inode);
        limits.put(GetMemoryLimits { name_space, soft_limit, hard_limit, current_used })
    }
}
