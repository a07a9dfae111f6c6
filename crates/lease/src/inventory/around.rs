//! The leases of the processes on a GPU, and those processes that bypass MPS and so have no memory limit.

use crate::gpu::{DriverError, Queries};
use crate::model::GpuUuid;
use crate::mps::Home;
use crate::process::{self, Host, Sight, View};
use crate::store::{Held, Lease};
use crate::trust;
use std::collections::BTreeMap;

/// A look at the processes on GPUs with shares at `mps`, once for each GPU.
pub(crate) struct AroundMps {
    owners: Owners,
    outside: BTreeMap<GpuUuid, Result<Vec<u32>, DriverError>>,
}

impl AroundMps {
    pub(crate) fn new() -> AroundMps {
        AroundMps {
            owners: Owners::new(),
            outside: BTreeMap::new(),
        }
    }

    /// Returns the processes of a share's container that compute on its GPU and are no MPS clients, by their numbers
    /// on the host. None if this process cannot tell them from others.
    ///
    /// # Errors
    /// The driver does not tell.
    pub(crate) fn of(
        &mut self,
        driver: &impl Queries,
        held: &Held,
    ) -> Result<Option<Vec<u32>>, DriverError> {
        if !self.owners.tells(&held.lease) {
            return Ok(None);
        }
        let gpu = held.instance.resource.gpu_uuid();
        let outside = self.outside.entry(gpu.clone());
        let outside = outside.or_insert_with(|| driver.outside_mps(gpu)).clone()?;
        let is_around = |pid: &u32| {
            self.owners.is_of(*pid, &held.lease)
                && !self.owners.has_ended(*pid)
                && !self.is_daemons(*pid, held)
        };
        Ok(Some(outside.into_iter().filter(is_around).collect()))
    }

    /// Returns whether a process is the control program of a share's daemon, or its server: in the daemon's cgroup, or
    /// a child of the program, wherever others moved it.
    fn is_daemons(&self, pid: u32, held: &Held) -> bool {
        let home = Home::cgroup_path_of(&held.lease.id);
        if self.owners.is_in(pid, &[home]) {
            return true;
        }
        let daemon = held.lease.daemon().and_then(|d| d.process);
        let daemon = daemon.filter(|d| process::is_alive(d) && self.owners.knows_pids(&held.lease));
        let (Some(daemon), Ok(pid)) = (daemon, i32::try_from(pid)) else {
            return false;
        };
        pid == daemon.pid || process::parent(pid) == Some(daemon.pid)
    }
}

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
        self.view.sees_all_namespaces()
            && self.view.of_cgroups(lease.namespaces.as_ref()) == Sight::Clear
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
        self.tells(lease) && self.is_in(pid, &lease.cgroups)
    }
}
