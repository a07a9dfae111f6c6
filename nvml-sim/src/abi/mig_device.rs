//! MIG devices: the view of compute instances that CUDA has.

use super::handle::{Device, Handle};
use super::nvml;
use super::pointers::Out;
use super::types::{DeviceAttributes, DeviceAttributes_v1};
use crate::engine::{Code, MigDevice, Mode};

nvml! {
    fn nvmlDeviceIsMigDeviceHandle(call, device: Handle, is_mig: Out<u32>) {
        let machine = call.machine()?;
        is_mig.put(matches!(device.device(&machine)?, Device::Mig(_)).into())
    }

    fn nvmlDeviceGetGpuInstanceId(call, device: Handle, id: Out<u32>) {
        id.put(device.mig_device(&*call.machine()?)?.gi.id)
    }

    fn nvmlDeviceGetComputeInstanceId(call, device: Handle, id: Out<u32>) {
        id.put(device.mig_device(&*call.machine()?)?.ci.id)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(call, device: Handle, count: Out<u32>) {
        count.put(device.gpu(&*call.machine()?)?.max_mig_devices())
    }

    // An empty index below the maximum is not found; from the maximum on it is invalid. With MIG
    // off every index is not found.
    fn nvmlDeviceGetMigDeviceHandleByIndex(call, device: Handle, index: u32, mig: Out<Handle>) {
        mig.check()?;
        let machine = call.machine()?;
        let gpu = device.gpu(&machine)?.of_mig_model()?;
        if gpu.mode == Mode::On && index >= gpu.max_mig_devices() {
            return Err(Code::INVALID_ARGUMENT);
        }
        let all = gpu.mig_devices();
        let found = all.get(index as usize).ok_or(Code::NOT_FOUND)?;
        mig.put(Handle::of_mig_device(device.gpu_index(), found))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(call, mig: Handle, device: Out<Handle>) {
        mig.mig_device(&*call.machine()?)?;
        device.put(Handle::of_gpu(mig.gpu_index()))
    }

    fn nvmlDeviceGetAttributes(call, device: Handle, out: Out<DeviceAttributes_v1>) {
        out.put(attributes(device.device(&*call.machine()?)?)?.first)
    }

    fn nvmlDeviceGetAttributes_v2(call, device: Handle, out: Out<DeviceAttributes>) {
        out.put(attributes(device.device(&*call.machine()?)?)?)
    }
}

fn attributes(device: Device) -> Result<DeviceAttributes, Code> {
    let Device::Mig(MigDevice { gpu, gi, ci }) = device else {
        return Err(Code::NOT_SUPPORTED);
    };
    let profile = gpu.profile_of(gi);
    let part = gpu.ci_profile_of(gi, ci.profile_id)?;
    Ok(DeviceAttributes {
        first: DeviceAttributes_v1 {
            multiprocessors: part.sm,
            engines: profile.engines,
        },
        gpu_instance_slice_count: profile.compute_slices,
        compute_instance_slice_count: part.slices,
        memory_size_mb: profile.memory_mb,
    })
}
