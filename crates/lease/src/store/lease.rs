//! The record of a lease: a holder's portion of an instance.

use super::holder::{Claim, Container, Holder, Key, is_mark};
use super::instance::{Attempt, Instance, InstanceState};
use crate::framed::Record;
use crate::model::{InstanceId, LeaseId, Level, Namespaces, OperationId, Process, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The hold of a container or a claim on an instance.
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
    /// The time of the create.
    pub created: Timestamp,
    /// The request, as the user wrote it.
    pub request: String,
    /// The holder of the portion.
    pub holder: Holder,
    /// The operation that makes the container. runmig does not collect the lease while it is at work. None for a
    /// promise, and for a container that a hook attached, where the life of the creator counts.
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
    /// The pod whose containers share the instance, or their claim, each with a lease of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_in: Option<String>,
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
            Holder::Claim(_) => None,
        }
    }

    /// Returns the claim, if the holder is one.
    pub fn claim(&self) -> Option<&Claim> {
        match &self.holder {
            Holder::Claim(claim) => Some(claim),
            Holder::Container(_) => None,
        }
    }

    /// Returns whether the lease is a claim's, or that of a container on the slice of a claim.
    pub(crate) fn is_of_claim(&self) -> bool {
        let shared_in = self.shared_in.as_deref();
        self.claim().is_some() || shared_in.is_some_and(is_mark)
    }

    /// Returns whether the lease promises a place to a claim, and no operation has begun to make the instance.
    pub fn is_promise(&self) -> bool {
        self.state == LeaseState::Pending && self.has_not_begun()
    }

    /// Returns whether the lease is a claim's whose instance nobody has begun to make.
    pub(crate) fn has_not_begun(&self) -> bool {
        self.claim().is_some() && self.operation.is_none()
    }

    /// Returns the part of the memory, if the lease is on one.
    pub fn share(&self) -> Option<&Share> {
        match &self.portion {
            Portion::Share(share) => Some(share),
            Portion::All => None,
        }
    }

    /// Returns the level at which the limit of a share holds.
    pub fn level(&self) -> Option<Level> {
        self.share().map(|share| share.enforcement.level())
    }

    /// Returns the MPS daemon that holds the limit of a share.
    pub fn daemon(&self) -> Option<&MpsDaemon> {
        match &self.share()?.enforcement {
            Enforcement::Mps(daemon) => Some(daemon),
            Enforcement::Driver(_) | Enforcement::None => None,
        }
    }

    /// Returns the failed attempts to end the MPS daemon.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.daemon()?.attempt.as_ref()
    }

    /// Changes the MPS daemon, if there is one.
    pub(crate) fn change_daemon(&mut self, change: impl FnOnce(&mut MpsDaemon)) {
        if let Portion::Share(share) = &mut self.portion
            && let Enforcement::Mps(daemon) = &mut share.enforcement
        {
            change(daemon);
        }
    }

    /// Sets the outcome of the hook that limits the container's memory in the driver.
    pub(crate) fn change_limit(&mut self, outcome: Limit) {
        if let Portion::Share(share) = &mut self.portion
            && let Enforcement::Driver(limit) = &mut share.enforcement
        {
            *limit = Some(outcome);
        }
    }

    /// Returns whether the container with this key is the holder.
    pub fn is_of(&self, key: &Key) -> bool {
        self.container().is_some_and(|c| c.key == *key)
    }
}

/// The part of an instance that a lease gives to its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Portion {
    /// The whole instance, together with the other leases on it.
    All,
    /// A part of the memory: a share of a GPU, or a seat in a slice.
    Share(Share),
}

/// A part of the memory of a GPU or a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The memory that the holder may use, in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// The memory that is booked on the GPU or slice: the holder's, and what the level needs, in MiB.
    #[serde(rename = "bookedMiB")]
    pub booked_mib: u64,
    /// What holds the holder to it.
    pub enforcement: Enforcement,
}

/// What holds a container to its part of the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Enforcement {
    /// An MPS daemon of its own.
    Mps(MpsDaemon),
    /// A limit of the driver on its cgroup, as the hook that sets it told its outcome. None before it ran.
    Driver(Option<Limit>),
    /// Nothing.
    None,
}

impl Enforcement {
    /// Returns the enforcement of a level, of which nothing is done yet.
    pub fn new(level: Level) -> Enforcement {
        match level {
            Level::Mps => Enforcement::Mps(MpsDaemon::default()),
            Level::Driver => Enforcement::Driver(None),
            Level::None => Enforcement::None,
        }
    }

    /// Returns the level.
    pub fn level(&self) -> Level {
        match self {
            Enforcement::Mps(_) => Level::Mps,
            Enforcement::Driver(_) => Level::Driver,
            Enforcement::None => Level::None,
        }
    }
}

/// The MPS daemon of a lease, which limits the memory of each of its clients. Its directories and its cgroup have the
/// id of the lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpsDaemon {
    /// The process of the daemon, on record before it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Whether the daemon has confirmed its limit.
    pub ready: bool,
    /// The number of restarts: a collector restarts the daemon once.
    pub restarts: u32,
    /// The failed attempts to end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

impl MpsDaemon {
    /// Returns whether a collector starts it again. One that ends each time has a cause that a restart does not remove.
    pub fn may_restart(&self) -> bool {
        self.restarts == 0
    }
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The lease.
    pub lease: Arc<Lease>,
    /// Its instance.
    pub instance: Arc<Instance>,
}

impl Held {
    /// Returns the failed attempts to destroy the instance, or to end the MPS daemon before.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.instance.attempt().or(self.lease.attempt())
    }
}

/// Names the portion for people: `1g.10gb at 4:1 on GPU 0`, or `8192Mi of GPU 1`.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(share) = self.lease.share() {
            write!(f, "{}Mi of ", share.memory_mib)?;
        }
        self.instance.resource.fmt(f)
    }
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A lease with its instance.
    Held(Held),
    /// An instance without a lease: idle, or on its way out.
    Unleased(Arc<Instance>),
}

impl Entry {
    /// Returns the id by which `migctl` names the entry: that of the lease, or of the instance.
    pub fn id(&self) -> &str {
        let lease = self.lease().map(|lease| lease.id.as_str());
        lease.unwrap_or(self.instance().id.as_str())
    }

    /// Returns the instance.
    pub fn instance(&self) -> &Instance {
        match self {
            Entry::Held(held) => &held.instance,
            Entry::Unleased(instance) => instance,
        }
    }

    /// Returns the failed attempts to end it.
    pub fn attempt(&self) -> Option<&Attempt> {
        let on_instance = self.instance().attempt();
        on_instance.or(self.lease().and_then(Lease::attempt))
    }

    /// Returns the lease, if there is one.
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Entry::Held(held) => Some(&held.lease),
            Entry::Unleased(_) => None,
        }
    }

    /// Returns the claim of Kubernetes that holds the instance.
    pub fn claim(&self) -> Option<&Claim> {
        self.lease()?.claim()
    }

    /// Says whether a user means the holder of this entry.
    pub fn is_called(&self, name: &str) -> bool {
        self.lease()
            .is_some_and(|lease| lease.holder.is_called(name))
    }

    /// Returns the name of the holder: the id of a container, or the name of a claim. Empty without a lease.
    pub fn holder(&self) -> &str {
        self.lease().map_or("", |l| l.holder.name())
    }

    /// Returns the time at which the entry came.
    pub fn created(&self) -> &Timestamp {
        let lease = self.lease().map(|lease| &lease.created);
        lease.unwrap_or(&self.instance().created)
    }

    /// Returns the time since which no container has the instance.
    pub fn idle_since(&self) -> Option<&Timestamp> {
        self.instance().idle_since()
    }

    /// Returns the state as `migctl` shows it.
    pub fn shown_state(&self) -> &'static str {
        let lease = self.lease().map(|l| l.state);
        match (lease, &self.instance().state) {
            (Some(LeaseState::Pending), _) if self.lease().is_some_and(Lease::is_promise) => {
                "promised"
            }
            (Some(LeaseState::Pending), _) => "creating",
            (Some(LeaseState::Ready), _) => "ready",
            _ if self.attempt().is_some() => "quarantined",
            (None, InstanceState::Idle { .. }) => "idle",
            (None, _) if self.instance().is_of_layout() => "layout",
            (None, InstanceState::Creating) => "creating",
            _ => "releasing",
        }
    }
}

impl Record for Lease {
    const KIND: &'static str = "Lease";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enforcement_is_read_as_written() {
        let begun = MpsDaemon {
            process: Some(Process {
                pid: 7,
                start_time: 8,
            }),
            ready: true,
            restarts: 1,
            attempt: Some(Attempt {
                count: 2,
                error: "it lives".to_owned(),
                held_by: vec!["7 nvidia-cuda-mps".to_owned()],
                next: "2026-01-01T00:00:00Z".into(),
            }),
        };
        let limited = LimitedCgroup {
            path: "/pod".to_owned(),
            inode: 9,
        };
        for (enforcement, level) in [
            (Enforcement::new(Level::Mps), Level::Mps),
            (Enforcement::Mps(begun), Level::Mps),
            (Enforcement::new(Level::Driver), Level::Driver),
            (
                Enforcement::Driver(Some(Limit::Set(limited))),
                Level::Driver,
            ),
            (Enforcement::new(Level::None), Level::None),
        ] {
            let share = Portion::Share(Share {
                memory_mib: 4096,
                booked_mib: 4224,
                enforcement: enforcement.clone(),
            });
            let text = serde_json::to_string(&share).unwrap();
            assert_eq!(serde_json::from_str::<Portion>(&text).unwrap(), share);
            assert_eq!(enforcement.level(), level, "{text}");
        }
    }
}
