//! The machine and the request as they are for slices that exist already.

use crate::model::Snapshot;
use crate::placement::{Constraints, Slot};

/// Returns the same request for slices that exist already: no place has to stay free for others.
pub(crate) fn unreserved<'a>(wanted: &Constraints<'a>) -> Constraints<'a> {
    Constraints {
        idle: &[],
        blockers: &[],
        ours: &[],
        ..*wanted
    }
}

/// Returns a machine on which these places are all the room there is.
pub(super) fn only(snapshot: &Snapshot, places: &[Slot]) -> Snapshot {
    let mut only = snapshot.clone();
    for gpu in &mut only.gpus {
        gpu.instances.clear();
        for profile in &mut gpu.profiles {
            let is_it =
                |p: &Slot, at| (&p.gpu, p.profile_id, p.placement) == (&gpu.uuid, profile.id, at);
            let placements = &mut profile.placements;
            placements.retain(|at| places.iter().any(|p| is_it(p, *at)));
        }
    }
    only
}
