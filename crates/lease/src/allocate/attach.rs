//! The lease of a container on the slice of its claim. The slice stays as long as one of them runs, also after the end
//! of the claim.
//!
//! Prepare puts the pods of a claim on record. The kubelet prepares a claim once, so a pod that comes to the claim later
//! gets on record by the driver's watch, while its containers start. Such a container waits for the record.

use super::occupied;
use super::requester::Acquired;
use crate::counters::{LeaseKind, Outcome};
use crate::draft;
use crate::error::{Context, Error, Result, printable};
use crate::events::EventType;
use crate::leases::Leases;
use crate::model::{Cgroup, Process};
use crate::reclaim::{self, liveness};
use crate::store::{
    Changes, ClaimName, Container, Held, Holder, Lease, LeaseState, Ledger, Listing,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    ) -> Result<Arc<Lease>> {
        let named = Holder::Container(container.clone());
        self.observer.begin(LeaseKind::Slice, Some(named), "");
        self.observer.ends(Outcome::Shared);
        let attached = attach_once(self, claim, container, init, patience);
        attached.inspect_err(|e| self.observer.ended(Outcome::Refused, Some(e)))
    }

    /// Returns *pending* leases for a container on the slices of these claims, before the container exists.
    ///
    /// # Errors
    /// As `attach`. Then none of them is on record. Another container lives under the same id or in the same cgroup.
    pub fn acquire_claimed(
        &self,
        holder: &Container,
        claims: &[ClaimName],
        cgroup: &Cgroup,
        patience: Duration,
    ) -> Result<Acquired> {
        let named = Holder::Container(holder.clone());
        self.observer.begin(LeaseKind::Slice, Some(named), "");
        let attached = attach_new(self, claims, holder, cgroup, patience);
        attached.inspect_err(|e| self.observer.failed(e))
    }
}

fn attach_once(
    context: &Leases<'_>,
    claim: &ClaimName,
    container: Container,
    init: Process,
    patience: Duration,
) -> Result<Arc<Lease>> {
    let found = on_claims(context, std::slice::from_ref(claim), &container, patience)?;
    let [of_claim] = found.slices.as_slice() else {
        return Err(Error::new("the claim has no slice"));
    };
    let instance = &of_claim.instance;
    let has = |held: &&Held| held.instance.id == instance.id && held.lease.is_of(&container.key);
    if let Some(held) = found.listing.held().find(has) {
        // It counted in the first call.
        return Ok(held.lease.clone());
    }
    let lease = Arc::new(Lease {
        state: LeaseState::Ready,
        init: Some(init),
        cgroups: reclaim::own_cgroups(init.pid),
        ..draft(of_claim, claim, &container)?
    });
    found.ledger.change(|state| {
        let counts = context.observer.counts_of(Outcome::Shared, None);
        state.counters.add(&counts);
        state.put_lease(lease.clone())
    })?;
    drop(found.ledger);
    log(&lease, of_claim);
    let instance = instance.clone();
    let held = Held { lease, instance };
    context.observer.placed(&held, EventType::Shared);
    context.observer.created(std::slice::from_ref(&held), None);
    Ok(held.lease)
}

/// Puts the leases on record. They name the operation, so a collector removes them after a kill.
fn attach_new(
    context: &Leases<'_>,
    claims: &[ClaimName],
    container: &Container,
    cgroup: &Cgroup,
    patience: Duration,
) -> Result<Acquired> {
    // As for `acquire`.
    liveness::namespaces()?;
    occupied::make_way(context, container, cgroup)?;
    let operation = context.store.begin()?;
    let Claimed { ledger, slices, .. } = loop {
        let found = on_claims(context, claims, container, patience)?;
        let leases: Vec<Held> = found.listing.held().cloned().collect();
        if !occupied::by_others(context, container, cgroup, operation.id(), &leases)? {
            break found;
        }
        drop(found);
        occupied::release_previous(context, container)?;
    };
    let mut leases: Vec<Held> = Vec::new();
    for (claim, of_claim) in claims.iter().zip(&slices) {
        let lease = Lease {
            operation: Some(operation.id().clone()),
            cgroups: cgroup.names.iter().chain(&cgroup.path).cloned().collect(),
            ..draft(of_claim, claim, container)?
        };
        leases.push(Held {
            lease: lease.into(),
            instance: of_claim.instance.clone(),
        });
    }
    ledger.change(|state| {
        leases
            .iter()
            .try_for_each(|held| state.put_lease(held.lease.clone()))
    })?;
    drop(ledger);
    context.observer.ends(Outcome::Shared);
    for (held, of_claim) in leases.iter().zip(&slices) {
        log(&held.lease, of_claim);
        context.observer.placed(held, EventType::Shared);
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

/// The time that a container waits until the driver has its pod on record. The hook's own timeout is twice as long.
pub const POD_PATIENCE: Duration = Duration::from_secs(15);
/// The time between two looks where the kernel gives no events.
const UNWATCHED: Duration = Duration::from_millis(200);

/// The slices of claims, while the ledger is locked.
struct Claimed<'a> {
    ledger: Ledger<'a>,
    listing: Listing,
    /// The leases of the claims, in their order.
    slices: Vec<Held>,
}

/// Locks the ledger and returns the leases of these claims. Before that it waits for this time until the claims name the
/// container's pod.
///
/// # Errors
/// A claim has no slice, or is not reserved for the container's pod.
fn on_claims<'a>(
    context: &'a Leases<'_>,
    claims: &[ClaimName],
    container: &Container,
    patience: Duration,
) -> Result<Claimed<'a>> {
    let end = Instant::now() + patience;
    let id = printable(&container.key.id);
    let what = || format!("start container {id}");
    let mut watch: Option<Option<Changes>> = None;
    loop {
        let ledger = context.store.lock(&format!("start of container {id}"))?;
        let listing = context.store.list()?;
        let slices = claims.iter().map(|claim| slice_of(&listing, claim));
        let slices = slices.collect::<Result<Vec<Held>>>().context(what)?;
        match slices.iter().find_map(|held| denial(held, container)) {
            None => {
                return Ok(Claimed {
                    ledger,
                    listing,
                    slices,
                });
            }
            Some(Denial::NotNamed(_)) if Instant::now() < end => {}
            Some(Denial::NotNamed(why) | Denial::Foreign(why)) => return Err(why).context(what),
        }
        drop(ledger);
        match &mut watch {
            Some(changes) => wait(changes, end).context(what)?,
            // Changes before it are not told, so the next look comes at once.
            None => watch = Some(Changes::of(context.store.dir()).ok()),
        }
    }
}

/// Returns the lease of a claim's device, whose slice is ready.
fn slice_of(listing: &Listing, claim: &ClaimName) -> Result<Held> {
    let is_its = |held: &&Held| {
        let its = held.lease.claim().is_some_and(|c| claim.is_of(c));
        its && held.lease.state == LeaseState::Ready
    };
    listing.held().find(is_its).cloned().ok_or_else(|| {
        let (uid, device) = (printable(&claim.uid), printable(&claim.device));
        Error::new(format!("claim {uid} has no slice for device {device}"))
            .hint("delete the pod; the kubelet prepares the claim of the next one")
    })
}

/// Why a container gets no slice of a claim.
enum Denial {
    /// The claim names other pods. The record may be older than the pod.
    NotNamed(Error),
    /// The claim can never name the pod.
    Foreign(Error),
}

fn denial(claimed: &Held, container: &Container) -> Option<Denial> {
    let claim = claimed.lease.claim()?;
    let Some(uid) = &container.pod_uid else {
        let why = Error::new(format!(
            "{claim} is for pods, and the annotations of the container name no pod"
        ));
        return Some(Denial::Foreign(why.hint(
            "start the container in a pod of Kubernetes, under containerd or CRI-O",
        )));
    };
    if claim.pods.iter().any(|pod| pod.uid == *uid) {
        return None;
    }
    let unnamed = String::new();
    let namespace = container.namespace.as_ref().unwrap_or(&unnamed);
    let pod = container.pod.as_ref().unwrap_or(&unnamed);
    let why = Error::new(format!(
        "{claim} is not reserved for pod {} (uid {})",
        printable(&format!("{namespace}/{pod}")),
        printable(uid)
    ));
    Some(match *namespace == claim.namespace {
        true => Denial::NotNamed(why.hint(
            "name the claim in spec.resourceClaims of the pod; if the pod names it, see that runmig-dra runs on the node",
        )),
        // A pod uses claims of its own namespace alone.
        false => Denial::Foreign(why.hint(
            "let the pod request a slice of its own, and not a CDI device of gpu.runmig.dev",
        )),
    })
}

/// Waits for a change of the ledger, or until the end.
fn wait(changes: &mut Option<Changes>, end: Instant) -> Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    match changes {
        Some(changes) => {
            crate::effect::wait("");
            changes.wait_for(left).map(drop)
        }
        None => {
            crate::effect::pause(left.min(UNWATCHED));
            Ok(())
        }
    }
}
