//! The holders of leases.

use super::claim::Claim;
use crate::framed::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
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

    /// Returns the kind and the name of the holder, for people: `container train`, or
    /// `claim team-a/train-gpu (pod team-a/train)`.
    pub fn title(&self) -> String {
        match self {
            Holder::Claim(claim) => claim.to_string(),
            Holder::Container(_) => format!("container {}", self.name()),
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

    /// Returns the first part of the names of the holder's records.
    pub(crate) fn prefix(&self) -> String {
        match self {
            Holder::Container(container) => container.key.prefix(),
            Holder::Claim(claim) => claim.prefix(),
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
    /// The name of the container in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// The login that called the engine, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
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

    /// Returns the first part of the names of the container's records.
    pub fn prefix(&self) -> String {
        use std::os::unix::ffi::OsStrExt;
        let mut hash = Sha256::new();
        // The first part was the path of the low-level runtime.
        for part in [&[], self.root.as_os_str().as_bytes(), self.id.as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let mut prefix = hex(&hash.finalize()[..12]);
        prefix.push('.');
        prefix
    }
}
