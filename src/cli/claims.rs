//! Claims of Kubernetes, as the views show them.

use runmig_lease::store::{Claim, Entry, Lease};

/// Returns the claim of an entry.
pub fn of(entry: &Entry) -> Option<&Claim> {
    entry.lease().and_then(Lease::claim)
}

/// Returns the pod of a claim: `team-a/train`, or `team-a/train and 2 more`.
pub fn pod(claim: &Claim) -> Option<String> {
    let [first, more @ ..] = claim.pods.as_slice() else {
        return None;
    };
    let pod = format!("{}/{}", claim.namespace, first.name);
    Some(match more.len() {
        0 => pod,
        n => format!("{pod} and {n} more"),
    })
}

/// Returns the name of a claim for a column of holders: `claim team-a/train-gpu`.
pub fn name(claim: &Claim) -> String {
    format!("claim {}", claim.full_name())
}
