//! Why there is no room for what a container asks for, after a search for what would have to lie
//! elsewhere: for when there is time, and somebody who reads it.

use super::search::fewest_moves;
use crate::model::Snapshot;
use crate::placement::choose::each_candidate;
use crate::placement::constraints::{Wanted, fitting, usable};
use crate::placement::diagnosis;
use crate::placement::occupancy::Reserved;
use crate::placement::plan::{Found, Movable, Plan};
use crate::placement::rejection::NoRoom;
use crate::placement::several::{Taken, choose_several, never_several};
use crate::request::Alternative;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    pub kind: Kind,
    pub no: NoRoom,
    /// Where something would have to lie elsewhere: what.
    pub plan: Option<Plan>,
    /// Of several slices, what there was room for.
    pub taken: Taken,
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
    /// Where no search adds anything.
    pub fn plain(no: NoRoom, taken: Taken) -> Reason {
        Reason {
            kind: match no {
                NoRoom::Never { .. } => Kind::Never,
                NoRoom::Now { .. } => Kind::Full,
            },
            no,
            plan: None,
            taken,
        }
    }
}

/// `wanted` is of all but what is asked for. None where there is room, as what is in the way is a limit of
/// which places know nothing.
pub fn reason(
    (snapshot, reserved): (&Snapshot, &[Reserved]),
    movable: &[Movable],
    asked: &Alternative,
    wanted: &Wanted<'_>,
    patience: u32,
) -> Option<Reason> {
    let taken = choose_several(snapshot, reserved, asked, wanted).err()?.0;
    let one = taken.wanted(wanted);
    let usable = usable(snapshot, &one);
    let fitting = fitting(&usable, &asked.slice, &one);
    let (mut kind, mut plan) = (Kind::Never, None);
    let no = if usable.is_empty() {
        diagnosis::no_gpu(snapshot, &one)
    } else if fitting.is_empty() {
        diagnosis::no_profile(&usable, &asked.slice, &one)
    } else if let Some(no) = never_several(snapshot, asked, &one) {
        return Some(Reason {
            kind,
            no,
            plan,
            taken,
        });
    } else if each_candidate(snapshot, &fitting, &taken.reserved, &one, |_| {}) {
        kind = Kind::Kept;
        diagnosis::kept(&fitting, &asked.slice)
    } else {
        let alone = wanted.alone();
        let found = fewest_moves(snapshot, reserved, movable, asked, &alone, patience);
        let searched = Some((asked, &found, movable.is_empty()));
        let (there, slice) = (&taken.reserved, &asked.slice);
        let no = diagnosis::in_words(snapshot, &fitting, there, slice, &one, searched);
        kind = match found {
            Found::Impossible => Kind::Full,
            Found::Beyond(_) => Kind::Fragmented,
            Found::Plan(found) => {
                plan = Some(found);
                Kind::Fragmented
            }
        };
        no
    };
    Some(Reason {
        kind,
        no: diagnosis::of_several(no, asked, taken.beside.len()),
        plan,
        taken,
    })
}
