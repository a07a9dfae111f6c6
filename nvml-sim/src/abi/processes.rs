//! The lists of processes on a GPU or MIG device: those that hold it.

use super::guard::Call;
use super::handle::{Device, Handle};
use super::nvml;
use super::pointers::{Out, Plain};
use super::types::{ProcessInfo, ProcessInfo_v1};
use crate::engine::{Code, Holder, HolderKind};
use crate::holders;

/// The id that stands for no instance.
const NONE: u32 = u32::MAX;

/// Memory that an MPS server uses beyond the figure that NVML lists: 72 MiB against 66 on an H100.
const UNLISTED_OF_SERVER: u64 = 6 << 20;

fn listed_memory(holder: &Holder) -> u64 {
    match holder.kind {
        HolderKind::MpsServer => holder.memory.saturating_sub(UNLISTED_OF_SERVER),
        HolderKind::MpsClient | HolderKind::Plain => holder.memory,
    }
}

fn processes(
    call: &Call,
    handle: Handle,
    wanted: impl Fn(HolderKind) -> bool,
) -> Result<Vec<ProcessInfo>, Code> {
    let machine = call.machine()?;
    let device = handle.device(&machine)?;
    let here = |gi: Option<u32>, ci: Option<u32>| match &device {
        Device::Gpu(_) => true,
        Device::Mig(mig) => gi == Some(mig.gi.id) && ci == Some(mig.ci.id),
    };
    Ok(holders::living(call.dir()?, &machine)
        .filter(|h| wanted(h.kind))
        .filter(|h| h.target.gpu == handle.gpu_index() && here(h.target.gi, h.target.ci))
        .map(|h| ProcessInfo {
            pid: h.pid,
            used_gpu_memory: listed_memory(h),
            gpu_instance_id: h.target.gi.unwrap_or(NONE),
            compute_instance_id: h.target.ci.unwrap_or(NONE),
        })
        .collect())
}

/// Here the count that comes in is the array's size, and what goes out is how many there are.
fn put<T: Plain>(all: &[T], infos: Out<T>, count: Out<u32>) -> Result<(), Code> {
    let room = count.get()? as usize;
    count.put(all.len() as u32)?;
    if room < all.len() {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    infos.put_all(all)
}

/// Three versions of a list, of the processes of a kind.
macro_rules! lists {
    ($($first:ident, $second:ident, $third:ident: $wanted:expr;)*) => { nvml! { $(
        fn $first(call, device: Handle, count: Out<u32>, infos: Out<ProcessInfo_v1>) {
            let short = |p: &ProcessInfo| {
                ProcessInfo_v1 { pid: p.pid, used_gpu_memory: p.used_gpu_memory }
            };
            let all: Vec<_> = processes(call, device, $wanted)?.iter().map(short).collect();
            put(&all, infos, count)
        }

        fn $second(call, device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) as $third {
            put(&processes(call, device, $wanted)?, infos, count)
        }
    )* } };
}

// MPS servers, MPS clients and plain CUDA processes compute. No process draws.
lists! {
    nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetComputeRunningProcesses_v2,
        nvmlDeviceGetComputeRunningProcesses_v3: |_| true;
    nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses_v2,
        nvmlDeviceGetGraphicsRunningProcesses_v3: |_| false;
    nvmlDeviceGetMPSComputeRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses_v2,
        nvmlDeviceGetMPSComputeRunningProcesses_v3: |kind| kind == HolderKind::MpsClient;
}
