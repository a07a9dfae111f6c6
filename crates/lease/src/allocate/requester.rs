//! The container that a create is for, and what that create has tried.

use super::levels::{LazyLevels, Levels};
use crate::config::Config;
use crate::draft;
use crate::error::Result;
use crate::inventory::Inventory;
use crate::leases::Leases;
use crate::model::{Cgroup, GpuUuid, InstanceId, LeaseId, Snapshot};
use crate::placement::Slot;
use crate::reclaim::{self, liveness};
use crate::request::Request;
use crate::store::{Container, Held, Holder, Instance, Lease, Operation, Portion};
use std::sync::Arc;
use std::time::Instant;

/// Whoever gets a lease: the container of a create, or a claim.
pub(super) trait Recipient {
    /// Returns why it takes a lock, for processes that wait for it.
    fn purpose(&self) -> String;

    /// Returns a lease of its own on an instance, not on record yet.
    fn draft(&self, instance: Arc<Instance>, portion: Portion) -> Result<Held>;
}

/// A container that requests slices.
pub(crate) struct Requester<'a> {
    pub holder: &'a Container,
    pub request: &'a Request,
    pub cgroup: &'a Cgroup,
    pub operation: &'a Operation,
    /// The levels of the machine, for a share.
    pub levels: LazyLevels,
}

impl Requester<'_> {
    /// Returns the levels of the machine for this container. The first call looks, which takes a moment.
    pub(super) fn levels(&self, config: &Config) -> &Levels {
        let (request, no_mps) = (self.request, self.request.no_mps.as_deref());
        let look = || Levels::of_wanted(config, no_mps, &request.wanted);
        self.levels.get_or_init(look)
    }
}

impl Recipient for Requester<'_> {
    fn purpose(&self) -> String {
        format!("create of {}", self.holder.key.id)
    }

    fn draft(&self, instance: Arc<Instance>, portion: Portion) -> Result<Held> {
        let holder = Holder::Container(self.holder.clone());
        let lease = Arc::new(Lease {
            portion,
            operation: Some(self.operation.id().to_owned()),
            namespaces: Some(liveness::namespaces()?),
            cgroups: { self.cgroup.names.iter().chain(&self.cgroup.path) }
                .cloned()
                .collect(),
            shared_in: self.request.shared_in.clone(),
            ..draft::lease(&instance, holder, self.request.wanted.written())?
        });
        Ok(Held { lease, instance })
    }
}

/// The slices of a create.
#[derive(Debug)]
pub struct Acquired {
    /// The leases, which are *pending*: the container is not made yet.
    pub leases: Vec<Held>,
    /// The operation of the create. No other process collects the leases before it is dropped.
    pub operation: Operation,
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
    /// Idle slices that were to be destroyed, by instance.
    pub idle: Vec<InstanceId>,
    /// Slices for seats whose makers took too long.
    pub late: Vec<Late>,
    /// The lease of another create whose slice this one waits for, and since when.
    pub awaited: Option<(LeaseId, Instant)>,
    /// GPUs that other processes kept locked, with the error in words.
    pub locked: Vec<(GpuUuid, String)>,
}

/// A slice for seats whose maker took too long.
#[derive(Debug)]
pub(crate) struct Late {
    /// The instance of the slice.
    pub slice: InstanceId,
    /// The maker, and the time that this create waited for it.
    pub why: String,
    /// The GPU that the maker or another process keeps locked, if one does, with the error in words.
    pub locked: Option<(GpuUuid, String)>,
}

impl Tried {
    /// Returns the idle slices that have to go before any choice.
    pub(super) fn idle_over(&self, inventory: &Inventory) -> Vec<Instance> {
        let over = inventory.idle_over();
        over.filter(|i| !self.idle.contains(&i.id))
            .cloned()
            .collect()
    }

    /// Destroys idle slices for another one. What stays counts as taken from now on.
    pub(super) fn evict(&mut self, context: &Leases<'_>, idle: Vec<Instance>) {
        for instance in idle {
            reclaim::discard_idle(context, &instance);
            self.idle.push(instance.id);
        }
    }

    /// Closes the GPUs that other processes kept locked.
    pub(super) fn close_locked(&self, snapshot: &mut Snapshot) {
        for gpu in &mut snapshot.gpus {
            if let Some((_, why)) = self.locked.iter().find(|(uuid, _)| *uuid == gpu.uuid) {
                gpu.closed.get_or_insert_default().locked = Some(why.clone());
            }
        }
    }

    /// Returns whether these tries woke queued requests: each was a lease that went.
    pub(crate) fn woke_others(&self) -> bool {
        !self.refused.is_empty() || !self.unfit.is_empty()
    }
}
