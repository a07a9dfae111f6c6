//! Why a create gets no slice or GPU.

use crate::error::Error;
use crate::placement::Rejection;
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
