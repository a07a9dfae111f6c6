//! Instances that an administrator created beforehand, with nvidia-smi or mig-parted. runmig hands them
//! out while nobody uses them, and never destroys them: the end of such a lease is the end of its record
//! alone.

use super::footprint::{only, unreserved};
use crate::draft::slot_of;
use crate::model::{Gpu, GpuInstance, Snapshot};
use crate::placement::{self, Constraints, Decision, Slot};
use crate::store::Slice;

/// Returns the instance that suits the request best, if it is at least as wanted as the best that could be
/// created.
pub(crate) fn candidate(
    snapshot: &Snapshot,
    taken: &[Slot],
    wanted: &Constraints<'_>,
    may: impl Fn(&Slice) -> bool,
    best: Option<&Decision<'_>>,
) -> Option<Slice> {
    let is_awaited = |s: &Slice| {
        let mut ahead = wanted.blockers.iter();
        ahead.any(|a| (&a.gpu, a.profile_id) == (&s.gpu_uuid, s.profile_id))
    };
    let made = unreserved(wanted);
    let mut there: Vec<Slice> = slices(snapshot)
        .filter(|s| is_unclaimed(s, taken) && may(s) && !is_awaited(s))
        .collect();
    let found = preferred(snapshot, &there, best, &made)?;
    Some(there.swap_remove(found))
}

/// Returns the instance that placement chooses, unless it prefers the profile of the slice that could be
/// created: a request may leave a choice of profiles.
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

/// Returns whether no lease claims the place. A planned place is claimed too, and so is an instance that
/// lies there by the time of the look.
fn is_unclaimed(slice: &Slice, taken: &[Slot]) -> bool {
    let here = taken.iter().filter(|r| r.gpu == slice.gpu_uuid);
    { here }.all(|r| !r.placement.overlaps(slice.placement))
}

/// Returns every GPU instance, with what the snapshot tells of it.
fn slices(snapshot: &Snapshot) -> impl Iterator<Item = Slice> {
    let all = snapshot.gpus.iter();
    all.flat_map(|gpu| gpu.instances.iter().filter_map(move |i| slice(gpu, i)))
}

/// Returns none where the GPU does not offer its profile.
fn slice(gpu: &Gpu, instance: &GpuInstance) -> Option<Slice> {
    Some(Slice {
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
        seats: None,
    })
}
