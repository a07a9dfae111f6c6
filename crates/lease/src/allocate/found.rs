//! What a look finds for a request, before it is on record, or why there is nothing for it.

use crate::error::Error;
use crate::placement::{NoRoom, ShareMemory};
use crate::store::{Enforcement, Held, Instance, Portion, Resource, Share, Slice};

/// What a request gets.
pub(super) enum Found<'a> {
    /// All of these, once the idle slices that lie in their places are destroyed.
    Pieces(Vec<Piece<'a>>, Vec<Instance>),
    /// A seat in a slice that another create makes now, which has this lease.
    PeerCreates(Box<Placed<'a>>, &'a Held),
}

/// One slice or GPU, or a part of one.
pub(super) enum Piece<'a> {
    Slice(Step),
    Placed(Placed<'a>),
}

/// Where one slice of a plan comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// At a free place.
    Create(Slice),
    /// An administrator's instance, as it is, with its record if a layout has it.
    Adopt(Slice, Option<Box<Instance>>),
    /// An idle slice, as it is.
    Reuse(Box<Instance>, Slice),
}

impl Step {
    /// Returns the slice.
    pub fn slice(&self) -> &Slice {
        match self {
            Step::Create(slice) | Step::Adopt(slice, _) | Step::Reuse(_, slice) => slice,
        }
    }
}

/// A portion of a slice or a GPU.
pub(super) struct Placed<'a> {
    pub portion: Portion,
    pub on: Resource,
    /// Leases, beside one of which it may lie.
    pub beside: Vec<&'a Held>,
    /// Whether the instance may be made, if none of them stays.
    pub may_make: bool,
}

impl Placed<'_> {
    /// Returns a portion that is a whole new instance.
    pub(super) fn all(on: Resource) -> Placed<'static> {
        Placed {
            portion: Portion::All,
            on,
            beside: Vec::new(),
            may_make: true,
        }
    }
}

pub(super) fn share(memory: ShareMemory) -> Portion {
    Portion::Share(Share {
        memory_mib: memory.memory_mib,
        booked_mib: memory.booked_mib,
        enforcement: Enforcement::new(memory.level),
    })
}

/// The answer to a request that cannot be had. `R` tells which room is missing: of one kind of request, or of
/// any.
pub enum Denial<R = Box<NoRoom>> {
    /// No GPU has room for it.
    Room(R),
    /// A limit of the policy.
    Limit(Error),
}

impl<R> Denial<R> {
    /// Returns the denial of a request without room, of which some would exceed a limit. A request above a limit is not
    /// queued, so the limit counts where no room may come one day.
    pub(super) fn new(may_pass: bool, over: Option<Error>, no: R) -> Denial<R> {
        match over {
            Some(over) if !may_pass => Denial::Limit(over),
            _ => Denial::Room(no),
        }
    }

    /// Says in another form which room is missing.
    pub(super) fn of<T>(self, form: impl FnOnce(R) -> T) -> Denial<T> {
        match self {
            Denial::Room(no) => Denial::Room(form(no)),
            Denial::Limit(over) => Denial::Limit(over),
        }
    }
}

impl Denial {
    /// Returns whether the answer may be another one once containers that are gone have released what they
    /// hold.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Denial::Room(no) => no.may_pass(),
            Denial::Limit(_) => true,
        }
    }
}

impl<R> From<Error> for Denial<R> {
    fn from(e: Error) -> Self {
        Denial::Limit(e)
    }
}
