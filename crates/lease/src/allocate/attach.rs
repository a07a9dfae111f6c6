//! The lease of a container on the slice of its claim. The slice stays as long as one of them runs, also after the end
//! of the claim.

use crate::context::{LeaseContext, now};
use crate::error::{Error, Result, printable};
use crate::model::{LeaseId, Process};
use crate::process;
use crate::reclaim::{self, liveness};
use crate::store::{self, ClaimName, Container, Held, Holder, Lease, LeaseState, Portion};

/// Puts a container's lease on record on the slice of a claim's device, before any process of its image runs. A second
/// call for the container changes nothing.
///
/// # Errors
/// The claim has no slice.
pub(crate) fn attach(
    context: &LeaseContext<'_>,
    claim: &ClaimName,
    container: Container,
    init: Process,
) -> Result<Lease> {
    let id = printable(&container.key.id);
    let ledger = context.store.lock(&format!("start of container {id}"))?;
    let listing = context.store.listing()?;
    let is_its = |held: &&Held| {
        let its = held.lease.claim().is_some_and(|c| claim.is_of(c));
        its && held.lease.state == LeaseState::Ready && held.lease.boot_id == context.boot_id
    };
    let Some(claimed) = listing.held().find(is_its) else {
        return Err(Error::new(format!(
            "cannot start container {id}: claim {} has no slice for device {}",
            printable(&claim.uid),
            printable(&claim.device)
        ))
        .hint("delete the pod; the kubelet prepares the claim of the next one"));
    };
    let instance = &claimed.instance;
    let has = |held: &&Held| held.instance.id == instance.id && held.lease.is_of(&container.key);
    if let Some(held) = listing.held().find(has) {
        return Ok(held.lease.clone());
    }
    let lease = Lease {
        id: LeaseId::new(store::random_id()?),
        instance: instance.id.clone(),
        portion: Portion::All,
        state: LeaseState::Ready,
        boot_id: context.boot_id.clone(),
        created: now(),
        request: claimed.lease.request.clone(),
        holder: Holder::Container(container),
        operation: None,
        creator: process::current(),
        runtime_process: None,
        init: Some(init),
        namespaces: Some(liveness::namespaces()?),
        cgroups: reclaim::own_cgroups(init.pid),
        shared_in: Some(claim.mark()),
        limit: None,
        unknown: serde_json::Map::new(),
    };
    ledger.sweep();
    ledger.put_lease(&lease)?;
    let (lease_id, resource) = (lease.id.as_str(), &instance.resource);
    tracing::info!(
        lease = lease_id,
        container = id,
        "uses {resource} of claim {}",
        claim.uid
    );
    Ok(lease)
}
