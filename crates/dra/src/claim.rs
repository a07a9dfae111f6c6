//! The claims of a pod, and the devices of an allocated claim that this node prepares: pure, from the API's answers.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim,
    ResourceClaimConsumerReference,
};
use runmig_lease::error::{Error, Result};
use runmig_lease::programs::DRIVER;
use runmig_lease::store::{Claim, ClaimPod};
use std::collections::BTreeSet;
use std::fmt;

/// The annotation of a claim that a template made: its name in the pod's `spec.resourceClaims`.
const NAME_IN_POD: &str = "resource.kubernetes.io/pod-claim-name";

/// A claim as the kubelet names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimName {
    /// The namespace.
    pub(crate) namespace: String,
    /// The name in the namespace.
    pub(crate) name: String,
    /// The uid, which a later claim of the same name does not have.
    pub(crate) uid: String,
}

impl fmt::Display for ClaimName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl From<&Claim> for ClaimName {
    fn from(claim: &Claim) -> ClaimName {
        ClaimName {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
        }
    }
}

/// Checks that the uid of a claim can be a part of the name of a file.
pub(crate) fn check_uid(uid: &str) -> Result<()> {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
    if uid.len() <= 64
        && uid.starts_with(|c: char| c.is_ascii_alphanumeric())
        && uid.bytes().all(is_plain)
    {
        return Ok(());
    }
    Err(
        Error::new(format!("uid {uid:?} is not a uid of Kubernetes"))
            .hint("look for another plugin that calls this driver's socket"),
    )
}

/// The devices of a claim on this node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Allocated {
    /// The name of the claim in the pod if a template made the claim, else its own name.
    pub(crate) title: String,
    /// The claim, once for each device, in its own order. There is one at least.
    pub(crate) devices: Vec<Claim>,
}

/// Returns the devices of a claim that are in this node's pool. `found` is the API's answer for the name of the claim.
///
/// # Errors
/// A claim that is gone, replaced, not allocated here or reserved for no pod, and one that wants more than a slice.
pub(crate) fn allocated(
    found: Option<ResourceClaim>,
    asked: &ClaimName,
    pool: &str,
) -> Result<Allocated> {
    const AGAIN: &str = "delete the pod, so that the scheduler allocates a claim for its successor";
    let stale = |why: String| Err(Error::new(why).hint(AGAIN));
    let Some(claim) = found else {
        return stale("the claim does not exist any more".to_owned());
    };
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    if uid != asked.uid {
        let asked = &asked.uid;
        return stale(format!(
            "the claim has uid {uid}, and the pod wants an earlier claim with uid {asked}"
        ));
    }
    let status = claim.status.unwrap_or_default();
    let Some(allocation) = status.allocation else {
        return stale("the claim is not allocated".to_owned());
    };
    let pods: Vec<ClaimPod> = { status.reserved_for.iter().flatten() }
        .filter_map(pod)
        .collect();
    if pods.is_empty() {
        return stale("the claim is reserved for no pod".to_owned());
    }
    let devices = allocation.devices.unwrap_or_default();
    let mut ours = devices.results.unwrap_or_default();
    ours.retain(|result| result.driver == DRIVER);
    if ours.is_empty() {
        return stale(format!("the claim has no device of {DRIVER}"));
    }
    for result in &ours {
        let (request, device) = (&result.request, &result.device);
        if result.pool != pool {
            return stale(format!(
                "device {device} is in pool {}, and this node's pool is {pool}",
                result.pool
            ));
        }
        if result.admin_access == Some(true) {
            return Err(Error::new(format!(
                "request {request} has adminAccess, and {DRIVER} gives none"
            ))
            .hint("remove adminAccess from the claim"));
        }
    }
    let is_ours = |configuration: &DeviceAllocationConfiguration| {
        let opaque = configuration.opaque.as_ref();
        opaque.is_some_and(|opaque| opaque.driver == DRIVER)
    };
    if devices.config.iter().flatten().any(is_ours) {
        return Err(Error::new(format!(
            "the claim or its class has a configuration for {DRIVER}, which has none"
        ))
        .hint("remove the opaque configuration from the claim and its DeviceClass"));
    }
    let device = |result: DeviceRequestAllocationResult| Claim {
        uid: asked.uid.clone(),
        namespace: asked.namespace.clone(),
        name: asked.name.clone(),
        request: result.request,
        pool: result.pool,
        device: result.device,
        pods: pods.clone(),
    };
    let mut annotations = claim.metadata.annotations.unwrap_or_default();
    let in_pod = annotations.remove(NAME_IN_POD);
    Ok(Allocated {
        title: in_pod.unwrap_or_else(|| asked.name.clone()),
        devices: ours.into_iter().map(device).collect(),
    })
}

/// Returns why a claim on record has no right to its device any more. None while it has.
pub(crate) fn withdrawn(found: Option<ResourceClaim>, held: &Claim) -> Option<String> {
    match allocated(found, &held.into(), &held.pool) {
        Err(why) => Some(why.reason()),
        Ok(now) if now.devices.iter().any(|d| d.device == held.device) => None,
        Ok(_) => Some(format!("the claim has not device {} any more", held.device)),
    }
}

fn pod(reference: &ResourceClaimConsumerReference) -> Option<ClaimPod> {
    let is_core = reference.api_group.as_deref().is_none_or(str::is_empty);
    (is_core && reference.resource == "pods").then(|| ClaimPod {
        uid: reference.uid.clone(),
        name: reference.name.clone(),
    })
}

/// Returns the names of the claims of a pod that goes on.
pub(crate) fn claims_of(pod: &Pod) -> BTreeSet<String> {
    let status = pod.status.as_ref();
    let is_over = status
        .and_then(|s| s.phase.as_deref())
        .is_some_and(|phase| ["Succeeded", "Failed"].contains(&phase));
    if is_over || pod.metadata.deletion_timestamp.is_some() {
        return BTreeSet::new();
    }
    let spec = pod.spec.as_ref();
    let named = { spec.into_iter() }
        .flat_map(|s| s.resource_claims.iter().flatten())
        .filter_map(|c| c.resource_claim_name.clone());
    let generated = { status.into_iter() }
        .flat_map(|s| s.resource_claim_statuses.iter().flatten())
        .filter_map(|s| s.resource_claim_name.clone());
    let extended = { status.and_then(|s| s.extended_resource_claim_status.as_ref()) }
        .map(|s| s.resource_claim_name.clone());
    generated.chain(named).chain(extended).collect()
}

#[cfg(test)]
mod tests;
