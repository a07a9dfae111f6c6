//! Finds the resource that the name of a damaged record tells.

use crate::context::LeaseContext;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::model::{Level, ListedInstance};
use crate::mps::{self, Home};
use crate::store::{Damaged, Kind, MpsDaemon, Place, Resource, Seats, Slice, WholeGpu};

/// Returns the resource that the driver shows at a place. Returns none if there is nothing.
///
/// # Errors
/// The driver's.
pub(super) fn resource(
    context: &LeaseContext<'_>,
    damaged: &Damaged,
    place: &Place,
) -> Result<Option<Resource>> {
    Ok(match damaged.instance().map(|name| name.kind) {
        Some(Kind::Gpu) => gpu_of(context, place, None)?.map(Resource::Gpu),
        Some(Kind::Mps) => daemon_of(context, damaged, place)?.map(Resource::Mps),
        _ => slice_of(context, damaged, place)?.map(Resource::Mig),
    })
}

/// Returns the MPS daemon of which something is left under the name of its instance.
fn daemon_of(
    context: &LeaseContext<'_>,
    damaged: &Damaged,
    place: &Place,
) -> Result<Option<MpsDaemon>> {
    if !is_daemon_there(context, damaged)? {
        return Ok(None);
    }
    let level = Some(Level::Mps);
    // The daemon ends even if the driver fails, or no longer shows its GPU.
    let gpu = gpu_of(context, place, level).ok().flatten();
    let gpu = gpu.unwrap_or_else(|| WholeGpu::lost(place, level));
    Ok(Some(MpsDaemon {
        gpu,
        limit_mib: 0,
        booked_mib: damaged
            .instance()
            .and_then(|i| i.booked_mib)
            .unwrap_or_default(),
        process: None,
        restarts: 0,
        slice: None,
    }))
}

fn is_daemon_there(context: &LeaseContext<'_>, damaged: &Damaged) -> Result<bool> {
    match damaged.instance().filter(|name| name.kind == Kind::Mps) {
        Some(name) => mps::is_there(&Home::of(&context.config.state_dir, &name.instance)),
        None => Ok(false),
    }
}

/// Returns the slice that the driver shows at a named place.
fn slice_of(context: &LeaseContext<'_>, damaged: &Damaged, place: &Place) -> Result<Option<Slice>> {
    let _lock = context
        .store
        .lock_gpu(&place.gpu_uuid, "release of a damaged lease")?;
    let driver = context.driver();
    let Some(instance) = at_its_place(&driver, place)? else {
        return Ok(None);
    };
    let gpu_uuid = &place.gpu_uuid;
    let ci = match instance.compute_instances.as_slice() {
        [] => None,
        [only] => Some(only.id),
        many => {
            return Err(Error::new(format!(
                "cannot tell which of {} compute instances of GPU instance {} on GPU {gpu_uuid} \
                     is the slice's",
                many.len(),
                instance.id
            ))
            .hint("destroy those that others made (nvidia-smi mig -dci), then try again"));
        }
    };
    let uuid = |ci| driver.mig_uuid(gpu_uuid, instance.id, ci);
    let label = driver.label(gpu_uuid, place.profile_id)?;
    Ok(Some(Slice {
        profile: label.profile,
        profile_id: place.profile_id,
        gpu_uuid: gpu_uuid.clone(),
        gpu_index: label.index,
        gpu_minor: label.minor,
        placement: place.placement,
        gpu_instance: Some(instance.id),
        compute_instance: ci,
        mig_uuid: ci.map(uuid).transpose()?,
        emptied: false,
        // The name of its record says so too.
        seats: (damaged.instance())
            .filter(|name| name.has_seats)
            .map(|_| Seats {
                level: Level::None,
                memory_mib: 0,
            }),
    }))
}

/// Returns whether the driver shows the resource at its place. A whole GPU counts as there.
pub(super) fn is_there(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    damaged: &Damaged,
    place: &Place,
) -> Result<bool> {
    match damaged.instance().map(|name| name.kind) {
        Some(Kind::Gpu) => Ok(true),
        Some(Kind::Mps) => is_daemon_there(context, damaged),
        _ => Ok(at_its_place(driver, place)?.is_some()),
    }
}

/// Returns the named GPU, if the driver shows it. The record lives as long as its release, so it has no use
/// for the memory.
fn gpu_of(
    context: &LeaseContext<'_>,
    place: &Place,
    level: Option<Level>,
) -> Result<Option<WholeGpu>> {
    let gpus = context.driver().snapshot()?.gpus;
    let gpu = gpus.into_iter().find(|g| g.uuid == place.gpu_uuid);
    Ok(gpu.map(|gpu| WholeGpu::of(&gpu, 0, level)))
}

fn at_its_place(driver: &impl Queries, place: &Place) -> Result<Option<ListedInstance>> {
    let there = driver.instances_of(&place.gpu_uuid, place.profile_id)?;
    Ok({ there.into_iter() }.find(|i| i.placement == place.placement))
}
