//! Why a create gets no slice or GPU.

use crate::counters::Outcome;
use crate::error::Error;
use crate::placement::{Rejection, RejectionKind};
use crate::refusal::NoRoom;

/// The answer to a request that cannot be had. `R` tells which room is missing: of one kind of request, or of
/// any.
pub(crate) enum Denial<R = Rejection> {
    Room(R),
    /// A limit of the policy.
    Limit(Error),
}

impl<R: Into<NoRoom>> Denial<R> {
    /// Returns the answer for a request of any kind.
    pub(crate) fn of_any_kind(self) -> Denial<NoRoom> {
        match self {
            Denial::Room(no) => Denial::Room(no.into()),
            Denial::Limit(over) => Denial::Limit(over),
        }
    }
}

impl Denial<NoRoom> {
    /// Returns whether the answer may be another one once containers that are gone have released what they
    /// hold.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Denial::Room(no) => no.may_pass(),
            Denial::Limit(_) => true,
        }
    }
}

/// Returns the end of a create without room that has no time to wait, in the words of `migctl explain`.
pub(super) fn end(no: &NoRoom) -> Outcome {
    let is_queued = match no {
        NoRoom::Slices(rejection) => {
            return match rejection.kind() {
                RejectionKind::Unsatisfiable => Outcome::Unsatisfiable,
                RejectionKind::Queued => Outcome::Queued,
                RejectionKind::Full => Outcome::Full,
                RejectionKind::Fragmented => Outcome::Fragmented,
            };
        }
        NoRoom::Share(shortage) => shortage.is_queued(),
        NoRoom::Gpus(shortage) => shortage.is_queued(),
        NoRoom::Seat(_) => false,
    };
    match (no.may_pass(), is_queued) {
        (false, _) => Outcome::Unsatisfiable,
        (true, true) => Outcome::Queued,
        (true, false) => Outcome::Full,
    }
}

impl From<Rejection> for Denial {
    fn from(no: Rejection) -> Denial {
        Denial::Room(no)
    }
}

impl<R> From<Error> for Denial<R> {
    fn from(e: Error) -> Self {
        Denial::Limit(e)
    }
}
