//! A request that finds no room, of any kind.

use super::{Refusal, Waited, gpus};
use crate::error::Error;
use crate::placement::{GpuShortage, Rejection};
use crate::store::Waiting;

/// A request without room, of any kind.
#[derive(Debug)]
pub(crate) enum NoRoom {
    Slices(Rejection),
    Gpus(GpuShortage),
}

impl From<Rejection> for NoRoom {
    fn from(rejection: Rejection) -> NoRoom {
        NoRoom::Slices(rejection)
    }
}

impl From<GpuShortage> for NoRoom {
    fn from(shortage: GpuShortage) -> NoRoom {
        NoRoom::Gpus(shortage)
    }
}

impl NoRoom {
    /// Says whether a wait may help.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            NoRoom::Slices(rejection) => matches!(rejection, Rejection::NoCapacity(_)),
            NoRoom::Gpus(shortage) => shortage.may_pass(),
        }
    }

    /// Returns the error of a create. `blockers` are the earlier requests in the queue.
    pub(crate) fn error(&self, blockers: &[Waiting], waited: Option<Waited>) -> Error {
        match self {
            NoRoom::Slices(rejection) => Refusal {
                rejection,
                blockers,
                waited,
            }
            .error(),
            NoRoom::Gpus(shortage) => gpus::error(shortage, blockers, waited.as_ref()),
        }
    }
}
