//! The container that a create is for, and what that create has tried.

use crate::placement::Slot;
use crate::request::Request;
use crate::spec::Cgroup;
use crate::store::Holder;

/// A container that requests slices.
pub struct Requester<'a> {
    pub holder: &'a Holder,
    pub request: &'a Request,
    pub cgroup: &'a Cgroup,
}

impl Requester<'_> {
    /// Returns why this create takes a lock, for processes that wait for it.
    pub fn purpose(&self) -> String {
        format!("create of {}", self.holder.key.id)
    }
}

/// Everything that a create has tried in vain since it last waited.
#[derive(Default)]
pub struct Tried {
    /// Places that the driver refused.
    pub refused: Vec<Slot>,
    /// Existing instances that could not be handed out.
    pub unfit: Vec<Slot>,
    /// Instances of an administrator's that are in use, or not whole.
    pub unusable: Vec<Slot>,
    /// Idle slices that were to be destroyed, by lease.
    pub idle: Vec<String>,
}

impl Tried {
    /// Returns whether these tries woke queued requests: each was a lease that went.
    pub fn woke_others(&self) -> bool {
        !self.refused.is_empty() || !self.unfit.is_empty()
    }
}
