//! The slices of claims for a container of a pod that the claims are reserved for.
//!
//! Prepare puts the pods of a claim on record. The kubelet prepares a claim once, so a pod that comes to the claim later
//! gets on record by the driver's watch, while its containers start. Such a container waits for the record.

use crate::error::{Context, Error, Result, printable};
use crate::leases::Leases;
use crate::store::{Changes, ClaimName, Container, Held, LeaseState, Ledger, Listing};
use std::time::{Duration, Instant};

/// The time that a container waits until the driver has its pod on record. The hook's own timeout is twice as long.
pub const POD_PATIENCE: Duration = Duration::from_secs(15);
/// The time between two looks where the kernel gives no events.
const UNWATCHED: Duration = Duration::from_millis(200);

/// The slices of claims, while the ledger is locked.
pub(super) struct Claimed<'a> {
    pub(super) ledger: Ledger<'a>,
    pub(super) listing: Listing,
    /// The leases of the claims, in their order.
    pub(super) slices: Vec<Held>,
}

/// Locks the ledger and returns the leases of these claims. Before that it waits for this time until the claims name the
/// container's pod.
///
/// # Errors
/// A claim has no slice, or is not reserved for the container's pod.
pub(super) fn on_claims<'a>(
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

/// The reason for which a container gets no slice of a claim.
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
