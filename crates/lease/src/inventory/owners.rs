//! The leases of the processes on a GPU, and the memory that the processes of each use.

use crate::gpu::Queries;
use crate::model::{GpuLoad, GpuProcess, GpuUuid};
use crate::process::{self, Host, Sight, View};
use crate::store::{Held, Lease};
use crate::trust;

/// Finds the lease of a process by its cgroups.
pub(super) struct Owners {
    view: View,
}

impl Owners {
    pub(super) fn new() -> Owners {
        Owners {
            view: View::new(&Host, std::process::id(), trust::is_host_root()),
        }
    }

    /// Returns whether a process that the driver lists is known to have ended. The driver's pids are those of the
    /// first pid namespace.
    pub(super) fn has_ended(&self, pid: u32) -> bool {
        let pid = i32::try_from(pid);
        self.view.sees_all_namespaces() && pid.is_ok_and(|pid| process::is_over(&Host, pid))
    }

    /// Returns whether the processes of a lease can be told from others.
    pub(super) fn tells(&self, lease: &Lease) -> bool {
        self.view.sees_all_namespaces() && self.view.sees_cgroups(lease.namespaces.as_ref())
    }

    /// Returns whether the pids of a lease's record name its processes here.
    pub(super) fn knows_pids(&self, lease: &Lease) -> bool {
        self.view.of_processes(&Host, lease.namespaces.as_ref()) == Sight::Clear
    }

    /// Returns whether a process is in one of these cgroups.
    pub(super) fn is_in(&self, pid: u32, cgroups: &[String]) -> bool {
        let pid = i32::try_from(pid);
        self.view.sees_all_namespaces()
            && !cgroups.is_empty()
            && pid.is_ok_and(|pid| process::is_in_cgroup(&Host, pid, cgroups))
    }

    /// Returns whether a process belongs to the container of a lease.
    pub(super) fn is_of(&self, pid: u32, lease: &Lease) -> bool {
        let pid = i32::try_from(pid);
        self.tells(lease) && pid.is_ok_and(|pid| process::is_in_cgroup(&Host, pid, &lease.cgroups))
    }
}

/// Returns the GPU memory that the processes of each lease use on its GPU, in bytes. None where it cannot be
/// found out.
pub(super) fn used_by(driver: &impl Queries, held: &[&Held]) -> Vec<Option<u64>> {
    let (owners, mut loads) = (Owners::new(), Vec::<(GpuUuid, Option<GpuLoad>)>::new());
    let used = |held: &&Held| {
        let uuid = held.instance.resource.gpu_uuid();
        if !loads.iter().any(|(known, _)| known == uuid) {
            loads.push((uuid.clone(), driver.load(uuid).ok()));
        }
        let (_, load) = loads.iter().find(|(known, _)| known == uuid)?;
        let load = load.as_ref().filter(|_| owners.tells(&held.lease))?;
        let all = load.processes.iter().chain(&load.graphics);
        let its = all.filter(|p: &&GpuProcess| owners.is_of(p.pid, &held.lease));
        its.map(|p| p.used_bytes).sum()
    };
    held.iter().map(used).collect()
}
