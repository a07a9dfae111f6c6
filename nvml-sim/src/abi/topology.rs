//! How near two GPUs are.

use super::handle::Handle;
use super::nvml;
use super::pointers::Out;
use crate::engine::Code;

/// `NVML_P2P_CAPS_INDEX_NVLINK`
const NVLINK: u32 = 2;
/// `NVML_P2P_STATUS_OK` and `NVML_P2P_STATUS_NOT_SUPPORTED`
const STATUS: [u32; 2] = [5, 0];
/// `NVML_TOPOLOGY_INTERNAL`, `NVML_TOPOLOGY_NODE` and `NVML_TOPOLOGY_SYSTEM`
const LEVEL: [u32; 3] = [0, 40, 50];

nvml! {
    // The other capabilities of peers are not simulated.
    fn nvmlDeviceGetP2PStatus(call, one: Handle, two: Handle, index: u32, status: Out<u32>) {
        let machine = call.machine()?;
        let (one, two) = (one.gpu(&machine)?, two.gpu(&machine)?);
        if index != NVLINK {
            return Err(Code::NOT_SUPPORTED);
        }
        let is_linked = one.nvlink.is_some() && one.nvlink == two.nvlink;
        status.put(STATUS[usize::from(is_linked)])
    }

    fn nvmlDeviceGetTopologyCommonAncestor(call, one: Handle, two: Handle, level: Out<u32>) {
        let machine = call.machine()?;
        let (one, two) = (one.gpu(&machine)?, two.gpu(&machine)?);
        level.put(match one.uuid == two.uuid {
            true => LEVEL[0],
            false => LEVEL[1 + usize::from(one.numa_node != two.numa_node)],
        })
    }
}
