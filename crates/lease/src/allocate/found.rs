//! What a look finds for a request, before it is on record.

use super::plan::Step;
use crate::model::Level;
use crate::placement::ShareMemory;
use crate::store::{Enforcement, Held, Instance, Resource, Share, WholeGpu};

/// What a request gets.
pub(super) enum Found<'a> {
    /// All of these, once the idle slices that lie in their places are destroyed.
    Pieces(Vec<Piece<'a>>, Vec<Instance>),
    /// A seat in a slice that another create makes now, which has this lease.
    PeerCreates(Box<PlacedShare<'a>>, &'a Held),
}

/// One slice, GPU or share.
pub(super) enum Piece<'a> {
    Slice(Step),
    Whole(WholeGpu),
    Share(PlacedShare<'a>),
}

/// A share or a seat, and where it lies.
pub(super) struct PlacedShare<'a> {
    pub share: Share,
    pub on: Resource,
    /// Leases, beside one of which it may lie.
    pub beside: Vec<&'a Held>,
    /// Whether the instance may be made, if none of them stays.
    pub may_make: bool,
}

/// Returns a share at a level.
pub(super) fn share(memory: ShareMemory, level: Level) -> Share {
    Share {
        memory_mib: memory.memory_mib,
        booked_mib: memory.booked_mib,
        enforcement: Enforcement::new(level),
    }
}
