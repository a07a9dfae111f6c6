//! The places of records that cannot be read, as the names of the records tell them.

use crate::model::{BootId, InstanceId};
use crate::placement::Slot;
use crate::store::{Damaged, DamagedName, Kind, Origin, Place};

/// A place of this boot that a record holds which cannot be read.
#[derive(Debug, Clone)]
pub(crate) struct Unread {
    pub(crate) place: Place,
    pub(crate) origin: Origin,
    /// The instance of an unreadable lease on a share, and the memory that it books, in MiB.
    pub(crate) share: Option<(InstanceId, u64)>,
    /// The instance, if it is an MPS daemon.
    pub(crate) daemon: Option<InstanceId>,
    /// The slice of the daemon of a seat, which has the place.
    pub(crate) parent: Option<InstanceId>,
}

impl Unread {
    /// Returns the place that a damaged record of a boot holds.
    pub(crate) fn of(damaged: &Damaged, boot: &BootId) -> Option<Unread> {
        let place = damaged.place().filter(|place| place.boot_id == *boot)?;
        Some(Unread {
            place: place.clone(),
            origin: damaged.origin(),
            share: unread_share(damaged),
            daemon: unread_daemon(damaged),
            parent: damaged.instance().and_then(|name| name.parent.clone()),
        })
    }

    /// Returns the reserved slot. The daemon of a seat has none beside that of its slice.
    pub(super) fn reserved(&self) -> Option<Slot> {
        self.parent.is_none().then(|| Slot {
            gpu: self.place.gpu_uuid.clone(),
            profile_id: self.place.profile_id,
            placement: self.place.placement,
        })
    }
}

/// Returns the instance and the booked memory that the names of unreadable records of a share tell. An MPS daemon
/// books by itself, also without a lease.
fn unread_share(damaged: &Damaged) -> Option<(InstanceId, u64)> {
    if let Some(name) = damaged.instance()
        && let Some(booked) = name.booked_mib
    {
        return Some((name.instance.clone(), booked));
    }
    match &damaged.name {
        DamagedName::Lease(name, Some(_)) if damaged.lease.is_none() => {
            Some((name.instance.clone(), name.booked_mib?))
        }
        _ => None,
    }
}

fn unread_daemon(damaged: &Damaged) -> Option<InstanceId> {
    let name = damaged.instance().filter(|name| name.kind == Kind::Mps);
    name.map(|name| name.instance.clone())
}
