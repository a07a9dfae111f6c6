//! The slices that a queued request could ever use.

use super::admit::Limits;
use crate::admitted::Admitted;
use crate::model::{GpuUuid, Snapshot};
use crate::placement::{self, Constraints, Reservation};
use crate::policy::{Policy, Subject};

/// Returns profile ids by GPU. A request does not wait for a slice that its limits would not leave it if it
/// held nothing, nor for one that no empty machine has.
pub(crate) fn could_use(
    (policy, subject): (&Policy, Subject),
    snapshot: &Snapshot,
    admitted: &Admitted,
) -> Vec<(GpuUuid, Vec<u32>)> {
    let limits = Limits::without_usage(policy, subject);
    let mut all: Vec<(GpuUuid, Vec<u32>)> = Vec::new();
    for asked in &admitted.alternatives {
        let wanted = Constraints {
            alternatives: std::slice::from_ref(&asked.slice),
            ..admitted.wanted()
        };
        let excluded = limits.excluded(snapshot, asked, &wanted);
        let wanted = Constraints {
            excluded: &excluded,
            ..wanted
        };
        if placement::never_several(snapshot, asked, &wanted).is_some() {
            continue;
        }
        for Reservation { gpu, profile_id } in placement::could_use(snapshot, &wanted) {
            match all.iter_mut().find(|(other, _)| *other == gpu) {
                Some((_, profiles)) if profiles.contains(&profile_id) => {}
                Some((_, profiles)) => profiles.push(profile_id),
                None => all.push((gpu, vec![profile_id])),
            }
        }
    }
    all
}
