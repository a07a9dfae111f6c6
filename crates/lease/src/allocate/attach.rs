//! The lease of a container on the slice of its claim. The slice stays as long as one of them runs, also after the end
//! of the claim.

use super::occupied;
use super::requester::Acquired;
use super::slices_of_claims::{Claimed, on_claims};
use crate::counters::{LeaseKind, Outcome};
use crate::draft;
use crate::error::{Error, Result, printable};
use crate::events::EventType;
use crate::leases::Leases;
use crate::model::{Cgroup, Process};
use crate::reclaim::{self, liveness};
use crate::store::{ClaimName, Container, Held, Holder, Lease, LeaseState};
use std::time::Duration;

impl Leases<'_> {
    /// Puts a container's lease on record on the slice of a claim's device, before any process of its image runs. A
    /// second call for the container changes nothing.
    ///
    /// `patience`: the time to wait until the claim names the container's pod.
    ///
    /// # Errors
    /// The claim has no slice, or is not reserved for the container's pod.
    pub fn attach(
        &self,
        claim: &ClaimName,
        container: Container,
        init: Process,
        patience: Duration,
    ) -> Result<Lease> {
        let named = Holder::Container(container.clone());
        self.observer.begin(LeaseKind::Slice, Some(named), "");
        self.observer.ends(Outcome::Shared);
        let attached = attach_once(self, claim, container, init, patience);
        match &attached {
            Ok((held, true)) => {
                self.observer.placed(held, EventType::Shared);
                self.observer.created(std::slice::from_ref(held), None);
            }
            // It counted in the first call.
            Ok((_, false)) => {}
            Err(e) => self.observer.ended(Outcome::Refused, Some(e)),
        }
        attached.map(|(held, _)| held.lease)
    }
}

/// Returns the lease, and whether it is new.
fn attach_once(
    context: &Leases<'_>,
    claim: &ClaimName,
    container: Container,
    init: Process,
    patience: Duration,
) -> Result<(Held, bool)> {
    let found = on_claims(context, std::slice::from_ref(claim), &container, patience)?;
    let [of_claim] = found.slices.as_slice() else {
        return Err(Error::new("the claim has no slice"));
    };
    let instance = &of_claim.instance;
    let has = |held: &&Held| held.instance.id == instance.id && held.lease.is_of(&container.key);
    if let Some(held) = found.listing.held().find(has) {
        return Ok((held.clone(), false));
    }
    let lease = Lease {
        state: LeaseState::Ready,
        init: Some(init),
        cgroups: reclaim::own_cgroups(init.pid),
        ..draft(of_claim, claim, &container)?
    };
    found.ledger.change(|state| {
        let counts = context.observer.counts_of(Outcome::Shared, None);
        state.counters.add(&counts);
        state.put_lease(&lease)
    })?;
    log(&lease, of_claim);
    let instance = instance.clone();
    Ok((Held { lease, instance }, true))
}

/// Puts a container's leases on record on the slices of these devices, before the container exists. They are *pending*
/// and name the operation, so a collector removes them after a kill.
///
/// # Errors
/// As `attach`. Then none of them is on record. Another container lives under the same id or in the same cgroup.
pub(crate) fn attach_new(
    context: &Leases<'_>,
    claims: &[ClaimName],
    container: &Container,
    cgroup: &Cgroup,
    patience: Duration,
) -> Result<Acquired> {
    occupied::release_previous(context, container)?;
    if let Some(path) = &cgroup.path {
        occupied::by_process(container, path)?;
    }
    let operation = context.store.begin()?;
    let (Claimed { ledger, slices, .. }, leases) = loop {
        let found = on_claims(context, claims, container, patience)?;
        let leases: Vec<Held> = found.listing.held().cloned().collect();
        if !occupied::by_same_id(context, container, operation.id(), &leases)? {
            break (found, leases);
        }
        drop(found);
        occupied::release_previous(context, container)?;
    };
    if let Some(path) = &cgroup.path {
        occupied::by_lease(context, container, path, &leases)?;
    }
    let mut leases: Vec<Held> = Vec::new();
    for (claim, of_claim) in claims.iter().zip(&slices) {
        let lease = Lease {
            operation: Some(operation.id().clone()),
            cgroups: cgroup.names.iter().chain(&cgroup.path).cloned().collect(),
            ..draft(of_claim, claim, container)?
        };
        leases.push(Held {
            lease,
            instance: of_claim.instance.clone(),
        });
    }
    ledger.change(|state| {
        leases
            .iter()
            .try_for_each(|held| state.put_lease(&held.lease))
    })?;
    for (held, of_claim) in leases.iter().zip(&slices) {
        log(&held.lease, of_claim);
    }
    Ok(Acquired { leases, operation })
}

fn draft(of_claim: &Held, claim: &ClaimName, container: &Container) -> Result<Lease> {
    let holder = Holder::Container(container.clone());
    Ok(Lease {
        namespaces: Some(liveness::namespaces()?),
        shared_in: Some(claim.mark()),
        ..draft::lease(&of_claim.instance, holder, of_claim.lease.request.clone())?
    })
}

fn log(lease: &Lease, of_claim: &Held) {
    let (id, container) = (lease.id.as_str(), printable(lease.holder.name()));
    let (resource, claim) = (&of_claim.instance.resource, &of_claim.lease.holder);
    tracing::info!(
        lease = id,
        container,
        "uses {resource} of {}",
        claim.title()
    );
}
