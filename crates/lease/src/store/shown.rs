//! The words of every view for a portion and its holder. A new kind of resource or holder gets its words here alone.

use super::holder::Holder;
use super::instance::InstanceState;
use super::lease::{Entry, Lease};
use super::resource::Resource;
use crate::model::Level;

/// A portion, as every view names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// The kind: one of [`Shown::KINDS`].
    pub kind: &'static str,
    /// The profile of a slice, `share` or `gpu`.
    pub name: &'a str,
    /// The memory in bytes of a share, a seat or a whole GPU.
    pub memory_bytes: Option<u64>,
    /// The memory in bytes that these book.
    pub booked_bytes: Option<u64>,
    /// The level at which the memory limit holds.
    pub enforcement: Option<&'static str>,
}

impl Shown<'_> {
    /// All kinds of portions.
    pub const KINDS: [&'static str; 4] = ["slice", "share", "gpu", "seat"];
}

/// The names of a holder. None says that this kind of holder has no such name, an empty one that this holder has
/// none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HolderNames<'a> {
    /// The namespace of Kubernetes.
    pub namespace: Option<&'a str>,
    /// The pod; of a claim the first.
    pub pod: Option<&'a str>,
    /// The container's name in its pod, else its id.
    pub container: Option<&'a str>,
    /// The container's id.
    pub container_id: Option<&'a str>,
    /// The name of the claim.
    pub claim: Option<&'a str>,
}

impl Holder {
    /// Returns the names of the holder.
    pub fn names(&self) -> HolderNames<'_> {
        match self {
            Holder::Container(container) => {
                let id = container.key.id.as_str();
                HolderNames {
                    namespace: Some(container.namespace.as_deref().unwrap_or_default()),
                    pod: Some(container.pod.as_deref().unwrap_or_default()),
                    container: Some(container.container_name.as_deref().unwrap_or(id)),
                    container_id: Some(id),
                    claim: None,
                }
            }
            Holder::Claim(claim) => HolderNames {
                namespace: Some(&claim.namespace),
                pod: claim.pods.first().map(|pod| pod.name.as_str()),
                claim: Some(&claim.name),
                ..HolderNames::default()
            },
        }
    }
}

impl Resource {
    /// All kinds of hardware and servers.
    pub const KINDS: [&'static str; 3] = ["mig", "gpu", "mps"];

    /// Returns the kind of the resource: one of [`Resource::KINDS`].
    pub fn kind(&self) -> &'static str {
        match self {
            Resource::Mig(_) => "mig",
            Resource::Gpu(_) => "gpu",
            Resource::Mps(_) => "mps",
        }
    }
}

impl InstanceState {
    /// All states, as views name them.
    pub const WORDS: [&'static str; 5] = ["creating", "ready", "idle", "releasing", "quarantined"];

    /// Returns the state as views name it.
    pub fn word(&self) -> &'static str {
        match self {
            InstanceState::Creating => "creating",
            InstanceState::Ready => "ready",
            InstanceState::Idle { .. } => "idle",
            InstanceState::Releasing => "releasing",
            InstanceState::Quarantined(_) => "quarantined",
        }
    }
}

impl Entry {
    /// All states of a lease, as [`Entry::shown_state`] names them.
    pub const LEASE_STATES: [&'static str; 5] =
        ["promised", "creating", "ready", "releasing", "quarantined"];

    /// Returns the portion, as every view names it.
    pub fn shown(&self) -> Shown<'_> {
        let resource = &self.instance().resource;
        if let Some(seat) = self.shown_seat() {
            return seat;
        }
        let share = self.lease().and_then(Lease::share);
        match (resource, share) {
            (Resource::Mig(slice), _) => Shown {
                kind: "slice",
                name: &slice.profile,
                memory_bytes: None,
                booked_bytes: None,
                enforcement: Some("mig"),
            },
            (Resource::Gpu(_) | Resource::Mps(_), Some(share)) => {
                let level = resource.gpu().and_then(|gpu| gpu.level);
                Shown::share((share.memory_mib, share.booked_mib), level)
            }
            (Resource::Mps(daemon), None) => {
                Shown::share((daemon.limit_mib, daemon.booked_mib), daemon.gpu.level)
            }
            (Resource::Gpu(gpu), None) => Shown {
                kind: "gpu",
                name: "gpu",
                memory_bytes: Some(gpu.memory_mib << 20),
                booked_bytes: Some(gpu.memory_mib << 20),
                enforcement: None,
            },
        }
    }

    fn shown_seat(&self) -> Option<Shown<'_>> {
        let resource = &self.instance().resource;
        let slice = resource.mig_slice()?;
        let share = self.lease().and_then(Lease::share);
        let (memory_mib, booked_mib, level) = match (share, resource) {
            (Some(share), Resource::Mig(_)) => {
                let level = slice.seats.map(|seats| seats.level);
                (share.memory_mib, share.booked_mib, level)
            }
            // The daemon of a seat stays for a moment after its lease.
            (_, Resource::Mps(daemon)) => (daemon.limit_mib, daemon.booked_mib, daemon.gpu.level),
            (None, Resource::Mig(_)) | (_, Resource::Gpu(_)) => return None,
        };
        Some(Shown {
            kind: "seat",
            name: &slice.profile,
            ..Shown::share((memory_mib, booked_mib), level)
        })
    }
}

impl Shown<'_> {
    fn share((memory_mib, booked_mib): (u64, u64), level: Option<Level>) -> Shown<'static> {
        Shown {
            kind: "share",
            name: "share",
            memory_bytes: Some(memory_mib << 20),
            booked_bytes: Some(booked_mib << 20),
            enforcement: level.map(Level::name),
        }
    }
}
