//! The holders of leases: containers and claims.

use crate::error::{first_of, short_id};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A kind of holder. A new kind is a new arm, and the compiler lists the places that need to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Holder {
    /// An OCI container.
    Container(Container),
    /// A device of a ResourceClaim of Kubernetes, which alone withdraws it.
    Claim(Claim),
}

impl Holder {
    /// Returns the name of the holder: the id of a container, or the name of a claim.
    pub fn name(&self) -> &str {
        match self {
            Holder::Container(container) => &container.key.id,
            Holder::Claim(claim) => &claim.name,
        }
    }

    /// Returns the holder as people know it: `default/web-0/main` in a pod, else the name that an engine gave it beside the
    /// id, `web (4f2a9c1d03be)`.
    pub fn shown(&self) -> String {
        match self {
            Holder::Container(container) => container.shown(),
            Holder::Claim(claim) => claim.name.clone(),
        }
    }

    /// Returns the kind and the name of the holder, for people: `container web (4f2a9c1d03be)`, or
    /// `claim team-a/train-gpu (pod team-a/train)`.
    pub fn title(&self) -> String {
        match self {
            Holder::Claim(claim) => claim.to_string(),
            Holder::Container(_) => format!("container {}", self.shown()),
        }
    }

    /// Says whether a user means this holder: a container by its id or its name, a claim by its UID or its name.
    pub fn is_called(&self, name: &str) -> bool {
        match self {
            Holder::Container(container) => container.is_called(name),
            Holder::Claim(claim) => name == claim.uid || name == claim.full_name(),
        }
    }

    /// Returns whether both are the same holder.
    pub(crate) fn is(&self, other: &Holder) -> bool {
        match (self, other) {
            (Holder::Container(one), Holder::Container(other)) => one.key == other.key,
            (Holder::Claim(one), Holder::Claim(other)) => one.is(other),
            (Holder::Container(_), _) | (Holder::Claim(_), _) => false,
        }
    }
}

/// The container that has a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// The name of the container.
    #[serde(flatten)]
    pub key: Key,
    /// The canonical path of the low-level runtime that made the container, for people only.
    #[serde(rename = "lowLevelRuntime")]
    pub runtime: PathBuf,
    /// The canonical path of the bundle.
    pub bundle: PathBuf,
    /// The namespace of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The UID of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The name of the container in the pod, or podman's or docker's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// The login that called the engine, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

impl Container {
    /// Returns the name for people: `default/web-0/main` in a pod, the engine's alone.
    pub fn full_name(&self) -> Option<String> {
        match (&self.namespace, &self.pod, &self.container_name) {
            (Some(namespace), Some(pod), Some(name)) => Some(format!("{namespace}/{pod}/{name}")),
            (Some(namespace), Some(pod), None) => Some(format!("{namespace}/{pod}")),
            (_, _, name) => name.clone(),
        }
    }

    fn shown(&self) -> String {
        let id = short_id(&self.key.id);
        match self.full_name().filter(|name| name != id) {
            Some(name) if self.pod.is_some() => name,
            Some(name) => format!("{name} ({id})"),
            None => id.to_owned(),
        }
    }

    /// Says whether a user means this container: by its id, its first 12 characters or more, or by its name.
    pub fn is_called(&self, name: &str) -> bool {
        let names = [self.full_name(), self.container_name.clone()];
        let is_name = names.iter().flatten().any(|its| its == name);
        !name.is_empty() && (is_name || is_id_of(name, &self.key.id))
    }
}

/// Says whether a text is an id, or at least its first 12 characters.
pub fn is_id_of(text: &str, id: &str) -> bool {
    text == id || (text.len() >= 12 && id.starts_with(text))
}

/// The name of a container. Ids are not unique across the roots of low-level runtimes. The low-level
/// runtime itself is no part of the name, because an upgrade may move its file under a container that runs.
/// runc and crun with one root and one id collide anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// The low-level runtime's `--root`, resolved.
    pub root: PathBuf,
    /// The id of the container.
    pub id: String,
}

impl Key {
    /// Names a container by its resolved root and its id.
    pub fn new(root: PathBuf, id: String) -> Key {
        Key { root, id }
    }
}

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

    /// Returns the kind and the name of the claim, for a column of holders: `claim team-a/train-gpu`.
    pub fn title(&self) -> String {
        format!("claim {}", self.full_name())
    }

    /// Returns the pods of the claim: `team-a/train`, or `team-a/train and 2 more`.
    pub fn pod(&self) -> Option<String> {
        let first = format!("{}/{}", self.namespace, self.pods.first()?.name);
        Some(first_of(&[first], self.pods.len()))
    }
}

/// Names the claim for people: `claim team-a/train-gpu (pod team-a/train)`.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title())?;
        self.pod().map_or(Ok(()), |pod| write!(f, " (pod {pod})"))
    }
}
