//! New instances that are not on record yet, and the places of slices.

use super::context::{LeaseContext, now};
use crate::error::Result;
use crate::model::InstanceId;
use crate::placement::Slot;
use crate::store::{
    Instance, InstanceState, MpsDaemon, Origin, Resource, Slice, WHOLE_GPU, random_id,
};

/// Returns an instance of this boot, not on record yet.
pub(crate) fn instance(
    context: &LeaseContext<'_>,
    resource: Resource,
    (origin, state): (Origin, InstanceState),
) -> Result<Instance> {
    Ok(Instance {
        id: InstanceId::new(random_id()?),
        boot_id: context.boot_id.clone(),
        created: now(),
        origin,
        state,
        resource,
        parent: None,
        layout: None,
        operation: None,
        planned: false,
    })
}

/// Returns the memory slices that a resource takes of its GPU. A whole GPU takes all, should its MIG mode be
/// switched on. The daemon of a seat has the place of its slice.
pub(crate) fn footprint(instance: &Instance) -> Option<Slot> {
    match &instance.resource {
        Resource::Mig(slice) => Some(slot_of(slice)),
        Resource::Mps(MpsDaemon {
            slice: Some(slice), ..
        }) => Some(slot_of(slice)),
        // A damaged record that was rebuilt by its name does not tell the place, which its slice holds on record.
        Resource::Mps(_) if instance.parent.is_some() => None,
        Resource::Gpu(_) | Resource::Mps(_) => Some(Slot {
            gpu: instance.resource.gpu_uuid().clone(),
            profile_id: 0,
            placement: WHOLE_GPU,
        }),
    }
}

/// Returns the place of a slice.
pub(crate) fn slot_of(slice: &Slice) -> Slot {
    Slot {
        gpu: slice.gpu_uuid.clone(),
        profile_id: slice.profile_id,
        placement: slice.placement,
    }
}
