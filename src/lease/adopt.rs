//! Instances that an administrator made beforehand, with nvidia-smi or mig-parted: handed out while
//! nobody uses them, and never destroyed by us. What is on record is that a container has one; the end
//! of that lease is the end of the record alone.

use super::Leases;
use super::acquire::place_of;
use super::reuse::Spare;
use crate::error::Result;
use crate::gpu::Driver;
use crate::model::{ComputeInstance, Gpu, GpuInstance, Snapshot};
use crate::placement::Reserved;
use crate::store::Slice;

impl Leases<'_> {
    /// GPU instances with one compute instance that no lease has, if the configuration lets them be
    /// adopted.
    pub(super) fn adoptable(&self, snapshot: &Snapshot, reserved: &[Reserved]) -> Vec<Spare> {
        if !self.config.adopt {
            return Vec::new();
        }
        let all = snapshot.gpus.iter().flat_map(|gpu| {
            let of_it = gpu.instances.iter();
            of_it.filter_map(move |i| Some((gpu, slice(gpu, i)?)))
        });
        all.filter(|(gpu, slice)| {
            // Also what is not there yet, or not any more: a place that is ours has nothing of theirs.
            let ours = reserved.iter().filter(|r| r.gpu == gpu.uuid);
            { ours }.all(|r| !r.placement.overlaps(slice.placement))
        })
        .map(|(_, slice)| Spare { slice, idle: None })
        .collect()
    }

    /// Asked while a place is chosen, so only what the driver answers at once; who has an instance
    /// merely open is looked for once it is ours to hand out.
    pub(super) fn is_usable(&self, driver: &impl Driver, spare: &Spare) -> Result<bool> {
        let slice = &spare.slice;
        let (Some(gi), Some(ci), None) = (slice.gpu_instance, slice.compute_instance, &spare.idle)
        else {
            return Ok(true);
        };
        let listed = driver.instances_of(&slice.gpu_uuid, slice.profile_id)?;
        let ci: Option<ComputeInstance> = listed
            .into_iter()
            .filter(|i| i.id == gi)
            .flat_map(|i| i.compute_instances)
            .find(|c| c.id == ci);
        let Some(ci) = ci else {
            return Ok(false);
        };
        Ok(driver.is_filled_by(&slice.gpu_uuid, gi, &ci)?
            && driver.processes(&slice.gpu_uuid, gi, ci.id)?.is_empty())
    }
}

/// None where it has no compute instance, or several.
fn slice(gpu: &Gpu, instance: &GpuInstance) -> Option<Slice> {
    let [ci] = instance.compute_instances.as_slice() else {
        return None;
    };
    Some(Slice {
        request: String::new(),
        profile: gpu.profile(instance.profile_id)?.name.clone(),
        profile_id: instance.profile_id,
        gpu_uuid: gpu.uuid.clone(),
        gpu_index: gpu.index,
        gpu_minor: gpu.minor,
        placement: instance.placement,
        gpu_instance: Some(instance.id),
        compute_instance: Some(ci.id),
        mig_uuid: None,
        emptied: false,
    })
}
