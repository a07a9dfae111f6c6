//! The slices for seats, with what is booked in each.

use super::Inventory;
use crate::model::InstanceId;
use crate::store::{Held, Instance, InstanceState, LeaseState, Seats, Slice};

/// A slice for seats that takes one more as long as it has room.
#[derive(Debug)]
pub(crate) struct SeatSlice<'a> {
    /// The record of the slice.
    pub instance: &'a Instance,
    /// The slice.
    pub slice: &'a Slice,
    /// The terms of its seats.
    pub seats: Seats,
    /// The holders of its seats. The name is empty if no container has a seat, or if its record cannot be read.
    pub holders: Vec<String>,
    /// The memory that they have booked, in MiB.
    pub booked_mib: u64,
    /// A lease on a seat that stays, beside which another is safe: the slice goes with the last.
    pub peer: &'a Held,
}

impl Inventory {
    /// Returns the leases on an instance and on those that lie on it.
    pub(crate) fn leases_in(&self, id: &InstanceId) -> impl Iterator<Item = &Held> {
        let is_in = move |i: &Instance| i.id == *id || i.parent.as_ref() == Some(id);
        self.leases.iter().filter(move |held| is_in(&held.instance))
    }

    /// Returns the slices for seats, except those that are on their way out.
    pub(crate) fn seat_slices(&self) -> Vec<SeatSlice<'_>> {
        let slice = |instance| self.seat_slice(instance);
        self.instances().filter_map(slice).collect()
    }

    fn seat_slice<'a>(&'a self, instance: &'a Instance) -> Option<SeatSlice<'a>> {
        let slice = instance.slice()?;
        let seats = slice.seats?;
        let is_in = |i: &Instance| i.id == instance.id || i.parent.as_ref() == Some(&instance.id);
        let stays = |held: &&Held| held.lease.state != LeaseState::Releasing;
        let peer = self.leases_in(&instance.id).find(stays)?;
        let is_whole = [InstanceState::Creating, InstanceState::Ready].contains(&instance.state);
        if !is_whole {
            return None;
        }
        let (mut holders, mut booked_mib) = (Vec::new(), 0);
        for held in self.leases_in(&instance.id) {
            holders.push(held.lease.holder.name().to_owned());
            booked_mib += held
                .lease
                .share()
                .map_or(seats.memory_mib, |s| s.booked_mib);
        }
        // A daemon books until it has ended, and the name of an unreadable record tells how much.
        let alone = self.unleased.iter().filter(|i| is_in(i));
        let alone = alone.filter_map(|i| Some(i.resource.daemon()?.booked_mib));
        let unread = self.damaged.iter().filter_map(|unread| {
            let (id, booked) = unread.share.as_ref()?;
            let is_its = *id == instance.id || unread.parent.as_ref() == Some(&instance.id);
            is_its.then_some(*booked)
        });
        for booked in alone.chain(unread) {
            holders.push(String::new());
            booked_mib += booked;
        }
        Some(SeatSlice {
            instance,
            slice,
            seats,
            holders,
            booked_mib,
            peer,
        })
    }
}
