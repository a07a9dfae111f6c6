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

/// Lists MPS servers, MPS clients and plain CUDA processes.
fn computing(call: &Call, handle: Handle) -> Result<Vec<ProcessInfo>, Code> {
    processes(call, handle, |_| true)
}

fn mps_clients(call: &Call, handle: Handle) -> Result<Vec<ProcessInfo>, Code> {
    processes(call, handle, |kind| kind == HolderKind::MpsClient)
}

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

fn put_v1(all: &[ProcessInfo], infos: Out<ProcessInfo_v1>, count: Out<u32>) -> Result<(), Code> {
    let short = |p: &ProcessInfo| ProcessInfo_v1 {
        pid: p.pid,
        used_gpu_memory: p.used_gpu_memory,
    };
    put(&all.iter().map(short).collect::<Vec<_>>(), infos, count)
}

/// No process draws.
fn nobody<T: Plain>(
    call: &Call,
    handle: Handle,
    infos: Out<T>,
    count: Out<u32>,
) -> Result<(), Code> {
    handle.device(&*call.machine()?)?;
    put(&[], infos, count)
}

nvml! {
    fn nvmlDeviceGetComputeRunningProcesses(
        call, device: Handle, count: Out<u32>, infos: Out<ProcessInfo_v1>,
    ) {
        put_v1(&computing(call, device)?, infos, count)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(
        call, device: Handle, count: Out<u32>, infos: Out<ProcessInfo>,
    ) as nvmlDeviceGetComputeRunningProcesses_v3 {
        put(&computing(call, device)?, infos, count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(
        call, device: Handle, count: Out<u32>, infos: Out<ProcessInfo_v1>,
    ) {
        nobody(call, device, infos, count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(
        call, device: Handle, count: Out<u32>, infos: Out<ProcessInfo>,
    ) as nvmlDeviceGetGraphicsRunningProcesses_v3 {
        nobody(call, device, infos, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses(
        call, device: Handle, count: Out<u32>, infos: Out<ProcessInfo_v1>,
    ) {
        put_v1(&mps_clients(call, device)?, infos, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
        call, device: Handle, count: Out<u32>, infos: Out<ProcessInfo>,
    ) as nvmlDeviceGetMPSComputeRunningProcesses_v3 {
        put(&mps_clients(call, device)?, infos, count)
    }
}
