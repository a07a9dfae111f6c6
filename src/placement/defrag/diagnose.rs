//! Why there is no room for what a container asks for, after a search for what would have to lie
//! elsewhere: for when there is time, and somebody who reads it.

use super::search::fewest_moves;
use crate::model::Snapshot;
use crate::placement::choose::each_candidate;
use crate::placement::constraints::{Constraints, fitting, usable};
use crate::placement::diagnosis;
use crate::placement::occupancy::Slot;
use crate::placement::plan::{DefragPlan, Movable, SearchResult};
use crate::placement::rejection::Rejection;
use crate::placement::several::{Selection, choose_several, never_several};
use crate::request::Alternative;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    pub kind: Kind,
    pub no: Rejection,
    /// The slices that would have to lie elsewhere, if that helps.
    pub plan: Option<DefragPlan>,
    /// The slots found for the first of several slices.
    pub taken: Selection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No wait helps.
    Never,
    /// There is room, but those who came before wait for it.
    Kept,
    Full,
    /// It would fit if other slices lay elsewhere, or that takes too long to find out.
    Fragmented,
}

impl Reason {
    /// Returns a reason to which no search adds anything.
    pub fn plain(no: Rejection, taken: Selection) -> Reason {
        Reason {
            kind: match no {
                Rejection::Unsatisfiable { .. } => Kind::Never,
                Rejection::NoCapacity { .. } => Kind::Full,
            },
            no,
            plan: None,
            taken,
        }
    }
}

/// `constraints` is of all but what is asked for. None where there is room, as what is in the way is a limit of
/// which places know nothing.
pub fn reason(
    (snapshot, reserved): (&Snapshot, &[Slot]),
    movable: &[Movable],
    request: &Alternative,
    constraints: &Constraints<'_>,
    steps: u32,
) -> Option<Reason> {
    let taken = choose_several(snapshot, reserved, request, constraints)
        .err()?
        .0;
    let one = taken.constraints(constraints);
    let usable = usable(snapshot, &one);
    let fitting = fitting(&usable, &request.slice, &one);
    let (mut kind, mut plan) = (Kind::Never, None);
    let no = if usable.is_empty() {
        diagnosis::no_gpu(snapshot, &one)
    } else if fitting.is_empty() {
        diagnosis::no_profile(&usable, &request.slice, &one)
    } else if let Some(no) = never_several(snapshot, request, &one) {
        return Some(Reason {
            kind,
            no,
            plan,
            taken,
        });
    } else if each_candidate(snapshot, &fitting, &taken.reserved, &one, |_| {}) {
        kind = Kind::Kept;
        diagnosis::kept(&fitting, &request.slice)
    } else {
        let alone = constraints.alone();
        let found = fewest_moves(snapshot, reserved, movable, request, &alone, steps);
        let searched = Some((request, &found, movable.is_empty()));
        let (there, slice) = (&taken.reserved, &request.slice);
        let no = diagnosis::in_words(snapshot, &fitting, there, slice, &one, searched);
        kind = match found {
            SearchResult::Impossible => Kind::Full,
            SearchResult::Beyond(_) => Kind::Fragmented,
            SearchResult::Plan(found) => {
                plan = Some(found);
                Kind::Fragmented
            }
        };
        no
    };
    Some(Reason {
        kind,
        no: diagnosis::of_several(no, request, taken.own_gpus.len()),
        plan,
        taken,
    })
}
