//! New leases and instances that are not on record yet, and the places of slices.

use super::leases::now;
use crate::error::Result;
use crate::model::{InstanceId, LeaseId};
use crate::placement::Slot;
use crate::process;
use crate::store::{
    Holder, Instance, InstanceState, Lease, LeaseState, Origin, Portion, Resource, Slice,
    WHOLE_GPU, random_id,
};

/// Returns an instance of this boot, not on record yet.
pub(crate) fn instance(
    resource: Resource,
    origin: Origin,
    state: InstanceState,
) -> Result<Instance> {
    Ok(Instance {
        id: InstanceId::new(random_id()?),
        created: now(),
        origin,
        state,
        resource,
        layout: None,
        operation: None,
        planned: false,
    })
}

/// Returns a *pending* lease on an instance, without processes and not on record yet.
pub(crate) fn lease(instance: &Instance, holder: Holder, request: String) -> Result<Lease> {
    Ok(Lease {
        id: LeaseId::new(random_id()?),
        instance: instance.id.clone(),
        portion: Portion::All,
        state: LeaseState::Pending,
        created: now(),
        request,
        holder,
        operation: None,
        creator: process::current(),
        runtime_process: None,
        init: None,
        namespaces: None,
        cgroups: Vec::new(),
        shared_in: None,
    })
}

/// Returns the memory slices that a resource takes of its GPU. A whole GPU takes all, should its MIG mode be
/// switched on.
pub(crate) fn footprint(instance: &Instance) -> Slot {
    match &instance.resource {
        Resource::Mig(slice) => slot_of(slice),
        Resource::Gpu(gpu) => Slot::new(&gpu.gpu_uuid, 0, WHOLE_GPU),
    }
}

/// Returns the place of a slice.
pub(crate) fn slot_of(slice: &Slice) -> Slot {
    Slot::new(&slice.gpu_uuid, slice.profile_id, slice.placement)
}
