//! The container that a create is for, and what that create has tried.

use crate::context::{LeaseContext, now};
use crate::draft::random_id;
use crate::error::Result;
use crate::model::Cgroup;
use crate::placement::Slot;
use crate::process;
use crate::reclaim::liveness;
use crate::request::{self, Request};
use crate::store::{Holder, Lease, Slice, State};

/// A container that requests slices.
pub(crate) struct Requester<'a> {
    pub holder: &'a Holder,
    pub request: &'a Request,
    pub cgroup: &'a Cgroup,
}

impl Requester<'_> {
    /// Returns why this create takes a lock, for processes that wait for it.
    pub(super) fn purpose(&self) -> String {
        format!("create of {}", self.holder.key.id)
    }

    /// Returns a lease of the container's on a slice, not on record yet.
    pub(super) fn draft(&self, context: &LeaseContext<'_>, slice: Slice) -> Result<Lease> {
        Ok(Lease {
            id: random_id()?,
            state: State::Creating,
            boot_id: context.boot_id.clone(),
            created: now(),
            holder: self.holder.clone(),
            slice: Slice {
                request: request::written(&self.request.alternatives),
                ..slice
            },
            creator: process::current(),
            runtime_process: None,
            init: None,
            namespaces: Some(liveness::namespaces()?),
            cgroups: { self.cgroup.names.iter().chain(&self.cgroup.path) }
                .cloned()
                .collect(),
            attempt: None,
            idle_since: None,
            adopted: false,
            shared_in: self.request.shared_in.clone(),
            unknown: serde_json::Map::new(),
        })
    }
}

/// Everything that a create has tried in vain since it last waited.
#[derive(Debug, Default)]
pub(crate) struct Tried {
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
    pub(crate) fn woke_others(&self) -> bool {
        !self.refused.is_empty() || !self.unfit.is_empty()
    }
}
