//! GPU instances.

use super::handle::Handle;
use super::nvml;
use super::pointers::{Out, chars};
use super::types::{
    GpuInstanceInfo, GpuInstanceProfileInfo, GpuInstanceProfileInfo_v2, GpuInstanceProfileInfo_v3,
    Span, version,
};
use crate::engine::{Code, GI_PROFILE_COUNT, GiProfile, Gpu};

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

fn info(p: &GiProfile) -> GpuInstanceProfileInfo {
    GpuInstanceProfileInfo {
        id: p.id,
        is_p2p_supported: 0,
        slice_count: p.compute_slices,
        instance_count: p.max_instances,
        multiprocessor_count: p.sm,
        copy_engine_count: p.engines.copy_engines,
        decoder_count: p.engines.decoders,
        encoder_count: p.engines.encoders,
        jpeg_count: p.engines.jpeg,
        ofa_count: p.engines.ofa,
        memory_size_mb: p.memory_mb,
    }
}

/// Fills the struct of the version that its first field asks for. The driver clears that field, so
/// a client that asks again has to set it again.
fn put_versioned(out: Out<GpuInstanceProfileInfo_v2>, p: &GiProfile) -> Result<(), Code> {
    const CLEARED: u32 = 0;
    let i = info(p);
    let name = chars(&format!("MIG {}", p.name));
    let asked = out.cast::<u32>().get()?;
    if asked == version::<GpuInstanceProfileInfo_v2>(2) {
        out.put(GpuInstanceProfileInfo_v2 {
            version: CLEARED,
            id: i.id,
            is_p2p_supported: i.is_p2p_supported,
            slice_count: i.slice_count,
            instance_count: i.instance_count,
            multiprocessor_count: i.multiprocessor_count,
            copy_engine_count: i.copy_engine_count,
            decoder_count: i.decoder_count,
            encoder_count: i.encoder_count,
            jpeg_count: i.jpeg_count,
            ofa_count: i.ofa_count,
            memory_size_mb: i.memory_size_mb,
            name,
        })
    } else if asked == version::<GpuInstanceProfileInfo_v3>(3) {
        out.cast().put(GpuInstanceProfileInfo_v3 {
            version: CLEARED,
            id: i.id,
            slice_count: i.slice_count,
            instance_count: i.instance_count,
            multiprocessor_count: i.multiprocessor_count,
            copy_engine_count: i.copy_engine_count,
            decoder_count: i.decoder_count,
            encoder_count: i.encoder_count,
            jpeg_count: i.jpeg_count,
            ofa_count: i.ofa_count,
            memory_size_mb: i.memory_size_mb,
            name,
            capabilities: if p.gfx { CAPS_GFX } else { 0 },
        })
    } else {
        Err(Code::INVALID_ARGUMENT)
    }
}

nvml! {
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        call, device: Handle, index: u32, out: Out<GpuInstanceProfileInfo>,
    ) {
        out.put(info(by_index(device.gpu(&*call.machine()?)?, index)?))
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
        instance.check()?;
        let gpu = device.gpu_index();
        let made = call.change(gpu, |machine, holds| {
            device.gpu(machine)?;
            machine.create_gpu_instance(gpu, profile_id, None, holds)
        })?;
        instance.put(Handle::of_gpu_instance(gpu, &made))
    }

    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        call, device: Handle, profile_id: u32, placement: Out<Span>, instance: Out<Handle>,
    ) {
        instance.check()?;
        let placement = Some(placement.get()?.into());
        let gpu = device.gpu_index();
        let made = call.change(gpu, |machine, holds| {
            device.gpu(machine)?;
            machine.create_gpu_instance(gpu, profile_id, placement, holds)
        })?;
        instance.put(Handle::of_gpu_instance(gpu, &made))
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
        let all: Vec<_> = device
            .gpu(&machine)?
            .gpu_instances_of(profile_id)?
            .into_iter()
            .map(|gi| Handle::of_gpu_instance(device.gpu_index(), gi))
            .collect();
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
