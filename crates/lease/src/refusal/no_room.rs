//! A request that finds no room, of any kind.

use super::{Refusal, Waited, gpus, seats, shares};
use crate::error::Error;
use crate::placement::{GpuShortage, Rejection, SeatShortage, ShareShortage};
use crate::store::Waiting;

/// A request without room, of any kind.
#[derive(Debug)]
pub(crate) enum NoRoom {
    Slices(Rejection),
    Share(ShareShortage),
    Seat(SeatShortage),
    Gpus(GpuShortage),
}

impl From<Rejection> for NoRoom {
    fn from(rejection: Rejection) -> NoRoom {
        NoRoom::Slices(rejection)
    }
}

impl From<ShareShortage> for NoRoom {
    fn from(shortage: ShareShortage) -> NoRoom {
        NoRoom::Share(shortage)
    }
}

impl From<SeatShortage> for NoRoom {
    fn from(shortage: SeatShortage) -> NoRoom {
        NoRoom::Seat(shortage)
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
            NoRoom::Share(shortage) => shortage.may_pass(),
            NoRoom::Seat(shortage) => shortage.may_pass(),
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
            NoRoom::Share(shortage) => shares::error(shortage, blockers, waited.as_ref()),
            NoRoom::Seat(shortage) => seats::error(shortage, blockers, waited),
            NoRoom::Gpus(shortage) => gpus::error(shortage, blockers, waited.as_ref()),
        }
    }
}
