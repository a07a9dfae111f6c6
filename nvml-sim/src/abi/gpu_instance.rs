//! GPU instances.

use super::guard::Call;
use super::handle::Handle;
use super::nvml;
use super::pointers::{Out, chars};
use super::types::{
    GpuInstanceInfo, GpuInstanceProfileInfo, GpuInstanceProfileInfo_v2, GpuInstanceProfileInfo_v3,
    ProfileCounts, Span, version,
};
use crate::engine::{Code, GI_PROFILE_COUNT, GiProfile, Gpu, Placement};

/// `NVML_GPU_INSTANCE_PROFILE_CAPS_GFX`
const CAPS_GFX: u32 = 2;

/// A profile by its index: past the end is not the same as not on this GPU.
fn by_index(gpu: &Gpu, index: u32) -> Result<&'static GiProfile, Code> {
    if index >= GI_PROFILE_COUNT {
        return Err(Code::INVALID_ARGUMENT);
    }
    gpu.model()
        .profile_by_index(index)
        .ok_or(Code::NOT_SUPPORTED)
}

fn counts(p: &GiProfile) -> ProfileCounts {
    ProfileCounts {
        slices: p.compute_slices,
        instances: p.max_instances,
        multiprocessors: p.sm,
        engines: p.engines,
    }
}

/// Fills the struct of the version that its first field asks for. The driver clears that field, so
/// a client that asks again has to set it again.
fn put_versioned(out: Out<GpuInstanceProfileInfo_v2>, p: &GiProfile) -> Result<(), Code> {
    const CLEARED: u32 = 0;
    let name = chars(&format!("MIG {}", p.name));
    let asked = out.cast::<u32>().get()?;
    if asked == version::<GpuInstanceProfileInfo_v2>(2) {
        out.put(GpuInstanceProfileInfo_v2 {
            version: CLEARED,
            id: p.id,
            is_p2p_supported: 0,
            counts: counts(p),
            memory_size_mb: p.memory_mb,
            name,
        })
    } else if asked == version::<GpuInstanceProfileInfo_v3>(3) {
        out.cast().put(GpuInstanceProfileInfo_v3 {
            version: CLEARED,
            id: p.id,
            counts: counts(p),
            memory_size_mb: p.memory_mb,
            name,
            capabilities: if p.gfx { CAPS_GFX } else { 0 },
        })
    } else {
        Err(Code::INVALID_ARGUMENT)
    }
}

fn create(
    call: &Call,
    device: Handle,
    profile_id: u32,
    placement: Option<Placement>,
    instance: Out<Handle>,
) -> Result<(), Code> {
    instance.check()?;
    let gpu = device.gpu_index();
    let made = call.change(gpu, |machine, holds| {
        device.gpu(machine)?;
        machine.create_gpu_instance(gpu, profile_id, placement, holds)
    })?;
    instance.put(Handle::of_gpu_instance(gpu, &made))
}

nvml! {
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        call, device: Handle, index: u32, out: Out<GpuInstanceProfileInfo>,
    ) {
        let p = by_index(device.gpu(&*call.machine()?)?, index)?;
        let (counts, memory_size_mb) = (counts(p), p.memory_mb);
        out.put(GpuInstanceProfileInfo { id: p.id, is_p2p_supported: 0, counts, memory_size_mb })
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoV(
        call, device: Handle, index: u32, out: Out<GpuInstanceProfileInfo_v2>,
    ) {
        put_versioned(out, by_index(device.gpu(&*call.machine()?)?, index)?)
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(
        call, device: Handle, profile_id: u32, out: Out<GpuInstanceProfileInfo_v2>,
    ) {
        let machine = call.machine()?;
        let profile = device.gpu(&machine)?.profile_or(profile_id, Err(Code::NOT_FOUND))?;
        put_versioned(out, profile.ok_or(Code::NOT_FOUND)?)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements(
        call, device: Handle, profile_id: u32, placements: Out<Span>, count: Out<u32>,
    ) as nvmlDeviceGetGpuInstancePossiblePlacements_v2 {
        let machine = call.monitored_machine()?;
        let all = device.gpu(&machine)?.possible_placements(profile_id)?;
        let all: Vec<Span> = all.into_iter().map(Span::from).collect();
        // Without an array only the count. The count that comes in means nothing here either.
        count.put(all.len() as u32)?;
        if placements.is_null() { Ok(()) } else { placements.put_all(&all) }
    }

    fn nvmlDeviceGetGpuInstanceRemainingCapacity(
        call, device: Handle, profile_id: u32, count: Out<u32>,
    ) {
        count.put(device.gpu(&*call.monitored_machine()?)?.remaining_capacity(profile_id)?)
    }

    fn nvmlDeviceCreateGpuInstance(
        call, device: Handle, profile_id: u32, instance: Out<Handle>,
    ) {
        create(call, device, profile_id, None, instance)
    }

    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        call, device: Handle, profile_id: u32, placement: Out<Span>, instance: Out<Handle>,
    ) {
        create(call, device, profile_id, Some(placement.get()?.into()), instance)
    }

    fn nvmlGpuInstanceDestroy(call, instance: Handle) {
        let gpu = instance.gpu_index();
        call.change(gpu, |machine, holds| {
            let id = instance.gpu_instance(machine)?.1.id;
            machine.destroy_gpu_instance(gpu, id, holds)
        })
    }

    // The count that comes in means nothing: the array has room for the profile's maximum.
    fn nvmlDeviceGetGpuInstances(
        call, device: Handle, profile_id: u32, instances: Out<Handle>, count: Out<u32>,
    ) {
        count.check()?;
        instances.check()?;
        let machine = call.monitored_machine()?;
        let all = device.gpu(&machine)?.gpu_instances_of(profile_id)?.into_iter();
        let handle = |gi| Handle::of_gpu_instance(device.gpu_index(), gi);
        let all: Vec<_> = all.map(handle).collect();
        instances.put_all(&all)?;
        count.put(all.len() as u32)
    }

    fn nvmlDeviceGetGpuInstanceById(call, device: Handle, id: u32, instance: Out<Handle>) {
        let machine = call.monitored_machine()?;
        let gi = device.gpu(&machine)?.of_mig_model()?.gpu_instance(id)?;
        instance.put(Handle::of_gpu_instance(device.gpu_index(), gi))
    }

    fn nvmlGpuInstanceGetInfo(call, instance: Handle, out: Out<GpuInstanceInfo>) {
        let machine = call.machine()?;
        let (_, gi) = instance.gpu_instance(&machine)?;
        out.put(GpuInstanceInfo {
            device: Handle::of_gpu(instance.gpu_index()),
            id: gi.id,
            profile_id: gi.profile_id,
            placement: gi.placement.into(),
        })
    }
}
