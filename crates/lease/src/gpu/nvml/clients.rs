//! The processes on a GPU, as clients of MPS and others.

use super::session::{Session, call, check, raw};
use crate::gpu::{DriverError, Reason, Result};
use crate::model::GpuUuid;
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings as sys;
use std::ffi::c_uint;

/// The room for the first listing, and for processes that start between two.
const ROOM: c_uint = 256;
/// The most processes of a list that runmig reads.
const MOST: c_uint = 1 << 16;
/// How often a list may outgrow its room.
const MAX_LISTINGS: usize = 4;
const INSUFFICIENT_SIZE: u32 = 7;

/// Which list of the driver.
#[derive(Clone, Copy)]
enum List {
    /// MPS servers, MPS clients and plain CUDA processes.
    Computing,
    /// MPS clients alone.
    Clients,
}

impl Session {
    /// Returns the processes that compute on a GPU and are no MPS clients. The driver tells the two lists one after
    /// the other, and a client may start or end between them, so this asks for the clients before and after.
    pub(super) fn computing_outside_mps(
        &self,
        device: &Device<'_>,
        gpu: &GpuUuid,
    ) -> Result<Vec<u32>> {
        let before = self.pids(device, gpu, List::Clients)?;
        let computing = self.pids(device, gpu, List::Computing)?;
        let after = self.pids(device, gpu, List::Clients)?;
        Ok(outside(computing, [&before, &after]))
    }

    fn pids(&self, device: &Device<'_>, gpu: &GpuUuid, list: List) -> Result<Vec<u32>> {
        let what = || match list {
            List::Computing => format!("list the processes on GPU {}", self.called(gpu)),
            List::Clients => format!("list the MPS clients on GPU {}", self.called(gpu)),
        };
        let mut room = ROOM;
        for _ in 0..MAX_LISTINGS {
            // SAFETY: a struct of integers, for which zeros are a value.
            let empty: sys::nvmlProcessInfo_t = unsafe { std::mem::zeroed() };
            let mut found = vec![empty; room as usize];
            let mut count = room;
            let (device, all) = (raw(device), found.as_mut_ptr());
            let listed = match list {
                List::Computing => call!(
                    self,
                    what,
                    nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, all)
                ),
                List::Clients => call!(
                    self,
                    what,
                    nvmlDeviceGetMPSComputeRunningProcesses_v3(device, &mut count, all)
                ),
            };
            match listed {
                Ok(()) => {
                    found.truncate(count as usize);
                    return Ok(found.iter().map(|p| p.pid).collect());
                }
                Err(e) if e.code() == Some(INSUFFICIENT_SIZE) && count < MOST => {
                    room = count.max(room).saturating_add(ROOM);
                }
                Err(e) => return Err(e),
            }
        }
        Err(DriverError {
            what: what(),
            reason: Reason::Answer("more of them start all the time".to_owned()),
        })
    }
}

/// Returns the processes that are no clients in either list.
fn outside(computing: Vec<u32>, clients: [&[u32]; 2]) -> Vec<u32> {
    let is_client = |pid: &u32| clients.iter().any(|all| all.contains(pid));
    computing.into_iter().filter(|p| !is_client(p)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_either_moment_are_inside() {
        // 2 ended after the list of all, and 3 started before it.
        assert_eq!(outside(vec![1, 2, 3, 4], [&[1, 2], &[1, 3]]), [4]);
    }
}
