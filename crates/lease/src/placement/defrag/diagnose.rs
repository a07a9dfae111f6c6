//! The rejection of a request, with the moves that would make room. It takes longer than a choice, and is
//! for errors.

use super::search::fewest_moves;
use crate::model::Snapshot;
use crate::placement::occupancy::Slot;
use crate::placement::plan::{Constraints, Movable};
use crate::placement::rejection::Search;
use crate::placement::several::{Diagnosis, choose_several};
use crate::request::Alternative;

/// Diagnoses why a request gets no slots. It returns None where slots are free for it: then the obstacle
/// is a limit that placement does not know. `steps` bounds the search.
pub fn diagnose(
    snapshot: &Snapshot,
    reserved: &[Slot],
    movable: &[Movable],
    request: &Alternative,
    constraints: &Constraints<'_>,
    steps: u32,
) -> Option<Box<Diagnosis>> {
    let mut diagnosis = choose_several(snapshot, reserved, request, constraints).err()?;
    if let Some(shortage) = diagnosis.rejection.shortage_mut() {
        let alone = constraints.without_blockers();
        shortage.search = Some(Search {
            result: fewest_moves(snapshot, reserved, movable, request, &alone, steps),
            has_movable: !movable.is_empty(),
        });
    }
    Some(diagnosis)
}
