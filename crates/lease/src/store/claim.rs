//! The holder of a lease that is a ResourceClaim of Kubernetes.

use super::holder::Key;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A ResourceClaim, with one of the devices that the scheduler allocated to it. Each device has a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The UID of the claim. A claim that replaces another under its name has another one.
    pub uid: String,
    /// The namespace of the claim.
    pub namespace: String,
    /// The name of the claim.
    pub name: String,
    /// The request of the claim that the device serves: `slice`, or `slice/alternative`.
    pub request: String,
    /// The pool of the device.
    pub pool: String,
    /// The name of the device in its pool.
    pub device: String,
    /// The pods for which the claim is reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<ClaimPod>,
}

/// A pod for which a claim is reserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPod {
    /// The UID of the pod.
    pub uid: String,
    /// The name of the pod, in the namespace of the claim.
    pub name: String,
}

/// The name of a claim's device, as a container's hook knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimName {
    /// The UID of the claim.
    pub uid: String,
    /// The name of the device.
    pub device: String,
}

impl ClaimName {
    /// Returns whether the claim has this name.
    pub(crate) fn is_of(&self, claim: &Claim) -> bool {
        (&self.uid, &self.device) == (&claim.uid, &claim.device)
    }

    /// Returns the mark of the leases of the claim's containers.
    pub(crate) fn mark(&self) -> String {
        format!("{}{}", mark_of(&self.uid), self.device)
    }
}

/// Returns the first part of the mark of all containers of a claim.
pub(crate) fn mark_of(uid: &str) -> String {
    format!("claim {uid} ")
}

/// Returns whether a text is the mark of a claim's container.
pub(crate) fn is_mark(text: &str) -> bool {
    text.starts_with("claim ")
}

impl Claim {
    /// Returns whether both are the same device of the same claim.
    pub fn is(&self, other: &Claim) -> bool {
        (&self.uid, &self.device) == (&other.uid, &other.device)
    }

    /// Returns the name of the claim, as kubectl shows it: `team-a/train-gpu`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the first part of the names of the records of this device.
    pub(crate) fn prefix(&self) -> String {
        Key::new(
            "claim".into(),
            format!("{}/{}/{}", self.uid, self.pool, self.device),
        )
        .prefix()
    }
}

/// Names the claim for people: `claim team-a/train-gpu (pod team-a/train)`.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim {}", self.full_name())?;
        match self.pods.as_slice() {
            [] => Ok(()),
            [pod] => write!(f, " (pod {}/{})", self.namespace, pod.name),
            [pod, more @ ..] => write!(
                f,
                " (pod {}/{} and {} more)",
                self.namespace,
                pod.name,
                more.len()
            ),
        }
    }
}
