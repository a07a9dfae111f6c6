//! The processes of containers that bypass MPS, and so have no memory limit.

use super::owners::Owners;
use crate::gpu::{DriverError, Queries};
use crate::model::GpuUuid;
use crate::mps::Home;
use crate::process;
use crate::store::Held;

/// A look at the processes on GPUs with shares at `mps`, once for each GPU.
pub(crate) struct AroundMps {
    owners: Owners,
    outside: Vec<(GpuUuid, Result<Vec<u32>, DriverError>)>,
}

impl AroundMps {
    pub(crate) fn new() -> AroundMps {
        AroundMps {
            owners: Owners::new(),
            outside: Vec::new(),
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
        if !self.outside.iter().any(|(known, _)| known == gpu) {
            self.outside.push((gpu.clone(), driver.outside_mps(gpu)));
        }
        let outside = self.outside.iter().find(|(known, _)| known == gpu);
        let Some((_, outside)) = outside else {
            return Ok(None);
        };
        let is_around = |pid: &u32| {
            self.owners.is_of(*pid, &held.lease)
                && !self.owners.has_ended(*pid)
                && !self.is_daemons(*pid, held)
        };
        let around = outside.clone()?.into_iter().filter(is_around);
        Ok(Some(around.collect()))
    }

    /// Returns whether a process is the control program of a share's daemon, or its server: in the daemon's cgroup, or
    /// a child of the program, wherever others moved it.
    fn is_daemons(&self, pid: u32, held: &Held) -> bool {
        let home = Home::cgroup_path_of(&held.instance.id);
        if self.owners.is_in(pid, &[home]) {
            return true;
        }
        let daemon = held.instance.resource.daemon().and_then(|d| d.process);
        let daemon = daemon.filter(|d| process::is_alive(d) && self.owners.knows_pids(&held.lease));
        let (Some(daemon), Ok(pid)) = (daemon, i32::try_from(pid)) else {
            return false;
        };
        pid == daemon.pid || process::parent(pid) == Some(daemon.pid)
    }
}
