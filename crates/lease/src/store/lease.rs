//! The record of a lease: a holder's portion of an instance.

use super::format::{self, Record};
use super::instance::{Instance, InstanceState, Resource};
use super::names::LeaseName;
use crate::framed::{Form, hex};
use crate::model::{
    BootId, InstanceId, LeaseId, Level, Namespaces, OperationId, Process, Timestamp,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::PathBuf;

/// The hold of a container on an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// A random id. The hook gets it as an argument, so that a late hook cannot mistake a successor.
    pub id: LeaseId,
    /// The id of the instance.
    pub instance: InstanceId,
    /// The part of the instance that the holder has.
    pub portion: Portion,
    /// The state of the lease.
    pub state: LeaseState,
    /// The boot of the lease. Neither instances nor leases survive a boot.
    pub boot_id: BootId,
    /// The time of the create.
    pub created: Timestamp,
    /// The request, as the user wrote it.
    pub request: String,
    /// The holder of the portion.
    pub holder: Holder,
    /// The operation that makes the container. runmig does not collect the lease while it is at work. None in
    /// a record of an earlier version, where the life of the creator counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// The process of the operation.
    pub creator: Process,
    /// The low-level runtime that the creator started. It goes on after a kill of the creator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_process: Option<Process>,
    /// The first process of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Process>,
    /// The namespaces in which the processes and cgroups of this record have these names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Namespaces>,
    /// Names of the container's cgroup, as path components.
    #[serde(default)]
    pub cgroups: Vec<String>,
    /// The pod whose containers share the instance, each with a lease of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_in: Option<String>,
    /// The outcome of the hook that limits the container's memory in the driver. None before it ran, and at other
    /// levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Fields of a newer version, which a rewrite keeps.
    #[serde(flatten)]
    pub unknown: serde_json::Map<String, serde_json::Value>,
}

/// A cgroup with a memory limit. A later cgroup at the same place has another inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedCgroup {
    /// The path, as `/proc/PID/cgroup` shows it.
    pub path: String,
    /// The inode of its directory.
    pub inode: u64,
}

/// The outcome of the hook that limits a container's memory in the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// The driver confirmed the limit of this cgroup.
    Set(LimitedCgroup),
    /// The hook failed, with this error.
    Failed(String),
}

impl Lease {
    /// Returns the container, if the holder is one.
    pub fn container(&self) -> Option<&Container> {
        match &self.holder {
            Holder::Container(container) => Some(container),
            #[cfg(test)]
            Holder::Dummy(_) => None,
        }
    }

    /// Returns the share of a GPU, if the lease is on one.
    pub fn share(&self) -> Option<Share> {
        match self.portion {
            Portion::Share(share) => Some(share),
            Portion::All => None,
        }
    }

    /// Returns whether the container with this key is the holder.
    pub fn is_of(&self, key: &Key) -> bool {
        self.container().is_some_and(|c| c.key == *key)
    }
}

/// The part of an instance that a lease gives to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Portion {
    /// The whole instance, together with the other leases on it.
    All,
    /// A part of the memory of a GPU.
    Share(Share),
}

/// A part of the memory of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The memory that the holder may use, in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// The memory that is booked on the GPU: the holder's, and what the level needs, in MiB.
    #[serde(rename = "bookedMiB")]
    pub booked_mib: u64,
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LeaseState {
    /// The container is not made yet, nor perhaps its instance.
    Pending,
    /// The container has the instance.
    Ready,
    /// runmig releases the lease. It stays until the driver has confirmed that the instance is gone.
    Releasing,
}

/// A lease with its instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The lease.
    pub lease: Lease,
    /// Its instance.
    pub instance: Instance,
}

impl Held {
    /// Returns the level of a share.
    pub fn level(&self) -> Option<Level> {
        self.lease.share()?;
        match &self.instance.resource {
            Resource::Mps(_) => Some(Level::Mps),
            Resource::Mig(slice) => slice.seats.map(|seats| seats.level),
            other => other.gpu()?.level,
        }
    }
}

/// Names the portion for people: `1g.10gb at 4:1 on GPU 0`, or `8192Mi of GPU 1`.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = &self.instance.resource;
        match (self.lease.share(), resource.mig_slice()) {
            (Some(share), Some(slice)) => write!(f, "{}Mi of {slice}", share.memory_mib),
            (Some(share), None) => {
                write!(f, "{}Mi of GPU {}", share.memory_mib, resource.gpu_index())
            }
            (None, _) => resource.fmt(f),
        }
    }
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "most entries are of the larger kind"
)]
pub enum Entry {
    /// A lease with its instance.
    Held(Held),
    /// An instance without a lease: idle, or on its way out.
    Unleased(Instance),
}

impl Entry {
    /// Returns the id by which `migctl` names the entry: that of the lease, or of the instance.
    pub fn id(&self) -> &str {
        match self {
            Entry::Held(held) => held.lease.id.as_str(),
            Entry::Unleased(instance) => instance.id.as_str(),
        }
    }

    /// Returns the instance.
    pub fn instance(&self) -> &Instance {
        match self {
            Entry::Held(held) => &held.instance,
            Entry::Unleased(instance) => instance,
        }
    }

    /// Returns the lease, if there is one.
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Entry::Held(held) => Some(&held.lease),
            Entry::Unleased(_) => None,
        }
    }

    /// Returns the name of the holder: the id of a container. Empty without a lease.
    pub fn holder(&self) -> &str {
        self.lease().map_or("", |l| l.holder.name())
    }

    /// Returns the time at which the entry came.
    pub fn created(&self) -> &Timestamp {
        match self {
            Entry::Held(held) => &held.lease.created,
            Entry::Unleased(instance) => &instance.created,
        }
    }

    /// Returns the boot of the entry.
    pub(crate) fn boot_id(&self) -> &BootId {
        match self {
            Entry::Held(held) => &held.lease.boot_id,
            Entry::Unleased(instance) => &instance.boot_id,
        }
    }

    /// Returns the time since which no container has the instance.
    pub fn idle_since(&self) -> Option<&Timestamp> {
        match self {
            Entry::Held(_) => None,
            Entry::Unleased(instance) => instance.idle_since(),
        }
    }

    /// Returns the state as `migctl` shows it.
    pub fn shown_state(&self) -> &'static str {
        let lease = self.lease().map(|l| l.state);
        match (lease, &self.instance().state) {
            (Some(LeaseState::Pending), _) => "creating",
            (Some(LeaseState::Ready), _) => "ready",
            (_, InstanceState::Quarantined(_)) => "quarantined",
            (None, InstanceState::Idle { .. }) => "idle",
            _ => "releasing",
        }
    }
}

impl Record for Lease {
    const FORM: Form = Form {
        version: format::VERSION,
        kind: "Lease",
    };

    fn file_name(&self) -> String {
        LeaseName::of(self).name()
    }

    /// A lease whose instance does not exist yet leaves room for later facts, because an unreadable record
    /// would lose the instance.
    fn max_size(&self) -> u64 {
        match self.state {
            LeaseState::Pending => format::MAX_SIZE / 4,
            LeaseState::Ready | LeaseState::Releasing => format::MAX_SIZE,
        }
    }
}

/// A kind of holder. A new kind is a new arm, and the compiler lists the places that need to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Holder {
    /// An OCI container.
    Container(Container),
    /// A file that stands for a holder. It proves that a second kind fits.
    #[cfg(test)]
    Dummy(crate::dummy::Holder),
}

impl Holder {
    /// Returns the name of the holder, for people: the id of a container.
    pub fn name(&self) -> &str {
        match self {
            Holder::Container(container) => &container.key.id,
            #[cfg(test)]
            Holder::Dummy(dummy) => &dummy.name,
        }
    }

    /// Returns whether both are the same holder.
    pub(crate) fn is(&self, other: &Holder) -> bool {
        match (self, other) {
            (Holder::Container(one), Holder::Container(other)) => one.key == other.key,
            #[cfg(test)]
            (Holder::Dummy(one), Holder::Dummy(other)) => one.name == other.name,
            #[cfg(test)]
            (Holder::Container(_), Holder::Dummy(_)) | (Holder::Dummy(_), Holder::Container(_)) => {
                false
            }
        }
    }

    /// Returns the first part of the names of the holder's records.
    pub(crate) fn prefix(&self) -> String {
        match self {
            Holder::Container(container) => container.key.prefix(),
            #[cfg(test)]
            Holder::Dummy(dummy) => Key::new("dummy".into(), dummy.name.clone()).prefix(),
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
