//! Memory of GPUs and MIG devices.

use super::handle::{Device, Handle};
use super::nvml;
use super::pointers::Out;
use super::types::{Bar1Memory, Memory, Memory_v2, version};
use crate::engine::Code;

const MIB: u64 = 1 << 20;

/// Total and reserved bytes. Nothing is ever used: there is nobody to compute.
fn sizes(device: &Device) -> (u64, u64) {
    match device {
        Device::Gpu(gpu) => (gpu.model().memory_mb * MIB, gpu.model().reserved_mb * MIB),
        Device::Mig(mig) => (mig.gpu.profile_of(mig.gi).memory_mb * MIB, 0),
    }
}

nvml! {
    /// The first version counts what is reserved as used.
    fn nvmlDeviceGetMemoryInfo(call, device: Handle, memory: Out<Memory>) {
        let (total, reserved) = sizes(&device.device(&*call.machine()?)?);
        memory.put(Memory { total, free: total - reserved, used: reserved })
    }

    /// Every version of the struct is a function of its own to the driver, so one that there is not
    /// is a function that it lacks.
    fn nvmlDeviceGetMemoryInfo_v2(call, device: Handle, memory: Out<Memory_v2>) {
        let (total, reserved) = sizes(&device.device(&*call.machine()?)?);
        let version = version::<Memory_v2>(2);
        if memory.cast::<u32>().get()? != version {
            return Err(Code::FUNCTION_NOT_FOUND);
        }
        memory.put(Memory_v2 { version, total, reserved, free: total - reserved, used: 0 })
    }

    /// The window through which the CPU sees the memory: the next power of two.
    fn nvmlDeviceGetBAR1MemoryInfo(call, device: Handle, memory: Out<Bar1Memory>) {
        let machine = call.machine()?;
        let device = device.device(&machine)?;
        let (total, _) = sizes(&device);
        let total = total.next_power_of_two();
        let used = match &device {
            Device::Gpu(gpu) => gpu.model().bar1_used_bytes,
            Device::Mig(_) => MIB,
        };
        memory.put(Bar1Memory { total, free: total - used, used })
    }

    /// No bit ever flips here. Without an answer nvidia-smi's long form leaves MIG devices out.
    fn nvmlDeviceGetMemoryErrorCounter(
        call, device: Handle, _kind: u32, _counter: u32, _location: u32, count: Out<u64>,
    ) {
        device.device(&*call.machine()?)?;
        count.put(0)
    }
}
