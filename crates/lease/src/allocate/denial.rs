//! Why a create gets no slice.

use crate::error::Error;
use crate::placement::Rejection;

pub(crate) enum Denial {
    Room(Rejection),
    /// A limit of the policy.
    Limit(Error),
}

impl Denial {
    /// Returns whether the answer may be another one once containers that are gone have released what they
    /// hold.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Denial::Room(Rejection::Unsatisfiable { .. }))
    }
}

impl From<Rejection> for Denial {
    fn from(no: Rejection) -> Denial {
        Denial::Room(no)
    }
}

impl From<Error> for Denial {
    fn from(e: Error) -> Denial {
        Denial::Limit(e)
    }
}
