//! Instances that an administrator made beforehand, with nvidia-smi or mig-parted: handed out while
//! nobody uses them, and never destroyed by us. What is on record is that a container has one; the end
//! of that lease is the end of the record alone.

use super::Leases;
use super::acquire::Applicant;
use super::reuse::{of_what_is_there, only, slot_of};
use crate::config::Config;
use crate::error::Result;
use crate::gpu::Inventory;
use crate::model::{ComputeInstance, Gpu, GpuInstance, Snapshot};
use crate::placement::{self, Constraints, Decision, Slot};
use crate::store::{Lease, Slice};

/// One that is what is wanted and that it may have, and at least as much wanted as the best that
/// could be made; none where the configuration says so.
pub(super) fn adoptable(
    config: &Config,
    (snapshot, taken): (&Snapshot, &[Slot]),
    wanted: &Constraints<'_>,
    may: impl Fn(&Slice) -> bool,
    best: Option<&Decision<'_>>,
    usable: impl Fn(Slice) -> Option<Slice>,
) -> Option<Slice> {
    if !config.adopt {
        return None;
    }
    let is_awaited = |s: &Slice| {
        let mut ahead = wanted.blockers.iter();
        ahead.any(|a| (&a.gpu, a.profile_id) == (&s.gpu_uuid, s.profile_id))
    };
    let made = of_what_is_there(wanted);
    let mut there: Vec<Slice> = slices(snapshot)
        .filter(|s| is_nobodys(s, taken) && may(s) && !is_awaited(s))
        .collect();
    while let Some(found) = preferred(snapshot, &there, best, &made) {
        let usable = usable(there.swap_remove(found));
        if usable.is_some() {
            return usable;
        }
    }
    None
}

impl Leases<'_> {
    /// Puts on record whose it is now.
    pub(super) fn adopt(&self, slice: Slice, who: &Applicant<'_>) -> Result<Lease> {
        let mut lease = self.draft(who, slice)?;
        lease.adopted = true;
        self.put_on_record(&lease, "is adopted: it is not ours")?;
        Ok(lease)
    }
}

/// Of what is there the one that placement chooses, unless it prefers the profile of what could be
/// made: a request may leave a choice of profiles.
fn preferred(
    snapshot: &Snapshot,
    there: &[Slice],
    best: Option<&Decision<'_>>,
    wanted: &Constraints<'_>,
) -> Option<usize> {
    let there: Vec<Slot> = there.iter().map(slot_of).collect();
    let only_there = only(snapshot, &there);
    let decision = placement::choose(&only_there, &[], wanted).ok()?;
    let name = &decision.profile.name;
    if let Some(best) = best.filter(|best| best.profile.name != *name) {
        let both = only(snapshot, &[decision.slot(), best.slot()]);
        let preferred = placement::choose(&both, &[], wanted).ok()?;
        if preferred.profile.name != *name {
            return None;
        }
    }
    let chosen = decision.slot();
    there.iter().position(|place| *place == chosen)
}

/// Also a place that is only planned is ours, and so is what lies there by the time we look.
fn is_nobodys(slice: &Slice, taken: &[Slot]) -> bool {
    let here = taken.iter().filter(|r| r.gpu == slice.gpu_uuid);
    { here }.all(|r| !r.placement.overlaps(slice.placement))
}

/// Returns the slice with its compute instance; none where that does not fill it, or is in use.
///
/// Asked while a place is chosen, so only what the driver answers at once; who has an instance merely
/// open is looked for once it is ours to hand out.
pub(super) fn usable(driver: &impl Inventory, slice: Slice) -> Result<Option<Slice>> {
    let Some(gi) = slice.gpu_instance else {
        return Ok(None);
    };
    let gpu = &slice.gpu_uuid;
    let listed = driver.instances_of(gpu, slice.profile_id)?;
    let instance = listed.into_iter().find(|i| i.id == gi);
    let cis: Vec<ComputeInstance> = instance.map_or(Vec::new(), |i| i.compute_instances);
    let [only] = cis.as_slice() else {
        return Ok(None);
    };
    let is_usable =
        driver.is_filled_by(gpu, gi, only)? && driver.processes(gpu, gi, only.id)?.is_empty();
    Ok(is_usable.then(|| Slice {
        compute_instance: Some(only.id),
        ..slice
    }))
}

/// Returns every GPU instance, with what the snapshot tells of it.
fn slices(snapshot: &Snapshot) -> impl Iterator<Item = Slice> {
    let all = snapshot.gpus.iter();
    all.flat_map(|gpu| gpu.instances.iter().filter_map(move |i| slice(gpu, i)))
}

/// None where the GPU does not offer its profile.
fn slice(gpu: &Gpu, instance: &GpuInstance) -> Option<Slice> {
    Some(Slice {
        request: String::new(),
        profile: gpu.profile(instance.profile_id)?.name.clone(),
        profile_id: instance.profile_id,
        gpu_uuid: gpu.uuid.clone(),
        gpu_index: gpu.index,
        gpu_minor: gpu.minor,
        placement: instance.placement,
        gpu_instance: Some(instance.id),
        compute_instance: None,
        mig_uuid: None,
        emptied: false,
    })
}
