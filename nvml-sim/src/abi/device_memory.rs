//! Memory of GPUs and MIG devices. The processes that hold them use it.

use super::guard::Call;
use super::handle::{Device, Handle};
use super::nvml;
use super::pointers::Out;
use super::types::{Bar1Memory, Memory, Memory_v2};
use crate::engine::{Code, Target};
use crate::holders;

const MIB: u64 = 1 << 20;

/// Bytes. Compute instances of one GPU instance share its memory.
struct Sizes {
    total: u64,
    reserved: u64,
    used: u64,
}

impl Sizes {
    fn of(call: &Call, handle: Handle) -> Result<Sizes, Code> {
        let machine = call.machine()?;
        let gpu = handle.gpu_index();
        let (gi, total, reserved) = match handle.device(&machine)? {
            Device::Gpu(gpu) => (None, gpu.model().memory_mb, gpu.model().reserved_mb),
            Device::Mig(mig) => (Some(mig.gi.id), mig.gpu.profile_of(mig.gi).memory_mb, 0),
        };
        let target = Target { gpu, gi, ci: None };
        let used = holders::used(call.dir()?, &machine, target);
        Ok(Sizes {
            total: total * MIB,
            reserved: reserved * MIB,
            used,
        })
    }

    fn free(&self) -> u64 {
        self.total - self.reserved - self.used
    }
}

nvml! {
    // The first version counts what is reserved as used.
    fn nvmlDeviceGetMemoryInfo(call, device: Handle, memory: Out<Memory>) {
        let sizes = Sizes::of(call, device)?;
        let (total, used) = (sizes.total, sizes.reserved + sizes.used);
        memory.put(Memory { total, free: sizes.free(), used })
    }

    // Every version of the struct is a function of its own to the driver, so one that there is not
    // is a function that it lacks.
    fn nvmlDeviceGetMemoryInfo_v2(call, device: Handle, memory: Out<Memory_v2>) {
        let sizes = Sizes::of(call, device)?;
        let version = memory.version(2, Code::FUNCTION_NOT_FOUND)?;
        let Sizes { total, reserved, used } = sizes;
        memory.put(Memory_v2 { version, total, reserved, free: sizes.free(), used })
    }

    // The window through which the CPU sees the memory: the next power of two.
    fn nvmlDeviceGetBAR1MemoryInfo(call, device: Handle, memory: Out<Bar1Memory>) {
        let total = Sizes::of(call, device)?.total.next_power_of_two();
        let used = match device.device(&*call.machine()?)? {
            Device::Gpu(gpu) => gpu.model().bar1_used_bytes,
            Device::Mig(_) => MIB,
        };
        memory.put(Bar1Memory { total, free: total - used, used })
    }

    // No bit ever flips here. Without an answer nvidia-smi's long form leaves MIG devices out.
    fn nvmlDeviceGetMemoryErrorCounter(
        call, device: Handle, _kind: u32, _counter: u32, _location: u32, count: Out<u64>,
    ) {
        device.device(&*call.machine()?)?;
        count.put(0)
    }
}
