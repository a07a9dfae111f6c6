//! Compute instances.

use super::handle::Handle;
use super::nvml;
use super::pointers::{Out, chars};
use super::types::{
    ComputeInstanceInfo, ComputeInstanceInfo_v1, ComputeInstanceProfileInfo,
    ComputeInstanceProfileInfo_v2, ComputeInstanceProfileInfo_v3, ProfileCounts, Span, version,
};
use crate::engine::{CI_PROFILE_COUNT, CiProfile, Code, Gpu, GpuInstance, Placement};

/// `NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED`, the only one there is.
const ENGINES_SHARED: u32 = 0;
/// `NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX`
const CAPS_GFX: u32 = 1;

fn by_index(gpu: &Gpu, gi: &GpuInstance, index: u32, engines: u32) -> Result<CiProfile, Code> {
    if index >= CI_PROFILE_COUNT || engines != ENGINES_SHARED {
        return Err(Code::INVALID_ARGUMENT);
    }
    gpu.ci_profile_of(gi, index)
}

fn info(gpu: &Gpu, gi: &GpuInstance, profile: &CiProfile) -> ComputeInstanceProfileInfo {
    let counts = ProfileCounts {
        slices: profile.slices,
        instances: gpu.ci_instance_count(gi, profile),
        multiprocessors: profile.sm,
        engines: gpu.profile_of(gi).engines,
    };
    let id = profile.id;
    ComputeInstanceProfileInfo { id, counts }
}

nvml! {
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        call, instance: Handle, index: u32, engines: u32, out: Out<ComputeInstanceProfileInfo>,
    ) {
        let machine = call.machine()?;
        let (gpu, gi) = instance.gpu_instance(&machine)?;
        out.put(info(gpu, gi, &by_index(gpu, gi, index, engines)?))
    }

    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        call, instance: Handle, index: u32, engines: u32, out: Out<ComputeInstanceProfileInfo_v2>,
    ) {
        let machine = call.machine()?;
        let (gpu, gi) = instance.gpu_instance(&machine)?;
        let profile = by_index(gpu, gi, index, engines)?;
        let info = info(gpu, gi, &profile);
        let name = chars(&format!("MIG {}", profile.name));
        let asked = out.cast::<u32>().get()?;
        if asked == version::<ComputeInstanceProfileInfo_v2>(2) {
            out.put(ComputeInstanceProfileInfo_v2 { version: asked, info, name })
        } else if asked == version::<ComputeInstanceProfileInfo_v3>(3) {
            let capabilities = if gpu.profile_of(gi).gfx { CAPS_GFX } else { 0 };
            let v3 = ComputeInstanceProfileInfo_v3 { version: asked, info, name, capabilities };
            out.cast().put(v3)
        } else {
            Err(Code::ARGUMENT_VERSION_MISMATCH)
        }
    }

    fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
        call, instance: Handle, profile_id: u32, count: Out<u32>,
    ) {
        let machine = call.monitored_machine()?;
        let (gpu, gi) = instance.gpu_instance(&machine)?;
        count.put(gpu.ci_remaining_capacity(gi, profile_id)?)
    }

    fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
        call, instance: Handle, profile_id: u32, placements: Out<Span>, count: Out<u32>,
    ) {
        let machine = call.monitored_machine()?;
        let (gpu, gi) = instance.gpu_instance(&machine)?;
        let profile = gpu.ci_profile_of(gi, profile_id)?;
        let all: Vec<Span> = profile.placements.into_iter().map(Span::from).collect();
        count.put(all.len() as u32)?;
        if placements.is_null() { Ok(()) } else { placements.put_all(&all) }
    }

    fn nvmlGpuInstanceCreateComputeInstance(
        call, instance: Handle, profile_id: u32, out: Out<Handle>,
    ) {
        create(call, instance, profile_id, None, out)
    }

    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        call, instance: Handle, profile_id: u32, placement: Out<Span>, out: Out<Handle>,
    ) {
        create(call, instance, profile_id, Some(placement.get()?.into()), out)
    }

    fn nvmlComputeInstanceDestroy(call, instance: Handle) {
        let gpu = instance.gpu_index();
        call.change(gpu, |machine, holds| {
            let found = instance.compute_instance(machine)?;
            let (gi, ci) = (found.gi.id, found.ci.id);
            machine.destroy_compute_instance(gpu, gi, ci, holds)
        })
    }

    // The count that comes in means nothing: the array has room for the profile's maximum.
    fn nvmlGpuInstanceGetComputeInstances(
        call, instance: Handle, profile_id: u32, instances: Out<Handle>, count: Out<u32>,
    ) {
        count.check()?;
        instances.check()?;
        let machine = call.monitored_machine()?;
        let (gpu, gi) = instance.gpu_instance(&machine)?;
        gpu.ci_profile_of(gi, profile_id).map_err(|_| Code::INVALID_ARGUMENT)?;
        let mut all: Vec<_> =
            gi.compute_instances.iter().filter(|ci| ci.profile_id == profile_id).collect();
        all.sort_by_key(|ci| ci.id);
        let handle = |ci| Handle::of_compute_instance(instance.gpu_index(), gi.id, ci);
        let handles: Vec<_> = all.into_iter().map(handle).collect();
        instances.put_all(&handles)?;
        count.put(handles.len() as u32)
    }

    fn nvmlGpuInstanceGetComputeInstanceById(call, instance: Handle, id: u32, out: Out<Handle>) {
        let machine = call.monitored_machine()?;
        let (_, gi) = instance.gpu_instance(&machine)?;
        let ci = gi.compute_instance(id)?;
        out.put(Handle::of_compute_instance(instance.gpu_index(), gi.id, ci))
    }

    fn nvmlComputeInstanceGetInfo(call, instance: Handle, out: Out<ComputeInstanceInfo_v1>) {
        let ComputeInstanceInfo { device, gpu_instance, id, profile_id, .. } =
            instance_info(call, instance)?;
        out.put(ComputeInstanceInfo_v1 { device, gpu_instance, id, profile_id })
    }

    fn nvmlComputeInstanceGetInfo_v2(call, instance: Handle, out: Out<ComputeInstanceInfo>) {
        out.put(instance_info(call, instance)?)
    }
}

fn create(
    call: &super::guard::Call,
    instance: Handle,
    profile_id: u32,
    placement: Option<Placement>,
    out: Out<Handle>,
) -> Result<(), Code> {
    out.check()?;
    let gpu = instance.gpu_index();
    let handle = call.change(gpu, |machine, _| {
        let gi = instance.gpu_instance(machine)?.1.id;
        let made = machine.create_compute_instance(gpu, gi, profile_id, placement)?;
        Ok(Handle::of_compute_instance(gpu, gi, &made))
    })?;
    out.put(handle)
}

/// The device in it is the parent GPU, not the MIG device that the instance is.
fn instance_info(call: &super::guard::Call, instance: Handle) -> Result<ComputeInstanceInfo, Code> {
    let machine = call.machine()?;
    let found = instance.compute_instance(&machine)?;
    Ok(ComputeInstanceInfo {
        device: Handle::of_gpu(instance.gpu_index()),
        gpu_instance: Handle::of_gpu_instance(instance.gpu_index(), found.gi),
        id: found.ci.id,
        profile_id: found.ci.profile_id,
        placement: found.ci.placement.into(),
    })
}
