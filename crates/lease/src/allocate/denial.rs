//! Why a create gets no slice or GPU.

use crate::counters::Outcome;
use crate::error::Error;
use crate::placement::{NoRoom, Rejection, RejectionKind};

/// The answer to a request that cannot be had. `R` tells which room is missing: of one kind of request, or of
/// any.
pub(crate) enum Denial<R = Rejection> {
    Room(R),
    /// A limit of the policy.
    Limit(Error),
}

impl<R> Denial<R> {
    /// Says in another form which room is missing.
    pub(super) fn of<T>(self, form: impl FnOnce(R) -> T) -> Denial<T> {
        match self {
            Denial::Room(no) => Denial::Room(form(no)),
            Denial::Limit(over) => Denial::Limit(over),
        }
    }
}

impl Denial<Box<NoRoom>> {
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
    match no.kind() {
        RejectionKind::Unsatisfiable => Outcome::Unsatisfiable,
        RejectionKind::Queued => Outcome::Queued,
        RejectionKind::Full => Outcome::Full,
        RejectionKind::Fragmented => Outcome::Fragmented,
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
