//! The words of every view for a portion and its holder. A new kind of resource or holder gets its words here alone.

use super::holder::Holder;
use super::instance::InstanceState;
use super::lease::{Entry, Lease, Share};
use super::resource::Resource;
use crate::counters::LeaseKind;

/// A portion, as every view names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// The kind.
    pub kind: LeaseKind,
    /// The profile of a slice, `share` or `gpu`.
    pub name: &'a str,
    /// The memory in bytes of a share, a seat or a whole GPU.
    pub memory_bytes: Option<u64>,
    /// The memory in bytes that these book.
    pub booked_bytes: Option<u64>,
    /// The level at which the memory limit holds.
    pub enforcement: Option<&'static str>,
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
        let share = self.lease().and_then(Lease::share);
        match (&self.instance().resource, share) {
            (Resource::Mig(slice), None) => Shown {
                kind: LeaseKind::Slice,
                name: &slice.profile,
                memory_bytes: None,
                booked_bytes: None,
                enforcement: Some("mig"),
            },
            (Resource::Mig(slice), Some(share)) => {
                Shown::share(LeaseKind::Seat, &slice.profile, share)
            }
            (Resource::Gpu(_), Some(share)) => Shown::share(LeaseKind::Share, "share", share),
            (Resource::Gpu(gpu), None) => Shown {
                kind: LeaseKind::Gpu,
                name: "gpu",
                memory_bytes: gpu.known_mib().map(|mib| mib << 20),
                booked_bytes: gpu.known_mib().map(|mib| mib << 20),
                enforcement: None,
            },
        }
    }
}

impl<'a> Shown<'a> {
    fn share(kind: LeaseKind, name: &'a str, share: &Share) -> Shown<'a> {
        Shown {
            kind,
            name,
            memory_bytes: Some(share.memory_mib << 20),
            booked_bytes: Some(share.booked_mib << 20),
            enforcement: Some(share.enforcement.level().name()),
        }
    }
}
