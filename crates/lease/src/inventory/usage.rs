//! The holdings that limits of the policy count.

use super::{Inventory, memory_of};
use crate::policy::{Kind, LimitAccount, Policy, Subject, Usage};
use crate::store::{Container, Held, Instance, Lease, Resource, Share};
use std::collections::BTreeSet;

impl Inventory {
    /// Returns what each group of subjects holds under each limit.
    pub fn limit_accounts(&self, policy: &Policy) -> Vec<LimitAccount> {
        policy.accounts(&self.usage())
    }

    /// Returns what the machine's subjects hold. A slice that the containers of a pod share counts once, and an
    /// idle one not at all.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        let mut counted = BTreeSet::new();
        let mut leased: Vec<&Held> = self.leases.iter().collect();
        leased.retain(|h| h.lease.share().is_some() || counted.insert(h.instance.id.as_str()));
        let leased = leased.into_iter();
        let leased = leased.map(|h| (holder_subject(&h.lease), &h.instance, h.lease.share()));
        let is_going = |i: &&Instance| i.idle_since().is_none() && !i.is_hold();
        let going = self.unleased.iter().filter(is_going);
        let going = going.map(|i| (Subject::default(), i, None));
        let usage = |(subject, instance, share): (Subject, &Instance, Option<Share>)| {
            let (kind, memory_mib) = match (&instance.resource, share) {
                (_, Some(share)) => (Kind::Share, share.booked_mib),
                (Resource::Mig(slice), None) => {
                    (Kind::Slice, memory_of(slice, &self.snapshot.gpus))
                }
                (Resource::Gpu(whole), None) => (Kind::Gpu, whole.memory_mib),
                (Resource::Mps(daemon), None) => (Kind::Share, daemon.booked_mib),
            };
            let slice = share.and_then(|_| instance.resource.mig_slice());
            Usage {
                subject,
                kind,
                memory_mib,
                whole_mib: slice.map_or(memory_mib, |s| memory_of(s, &self.snapshot.gpus)),
            }
        };
        leased.chain(going).map(usage).collect()
    }
}

/// Returns the subject of a lease's holder.
pub(crate) fn holder_subject(lease: &Lease) -> Subject {
    match (lease.container(), lease.claim()) {
        (Some(container), _) => subject_of(container),
        (None, Some(claim)) => Subject {
            namespace: Some(claim.namespace.clone()),
            pod: claim.pods.first().map(|pod| pod.name.clone()),
            pod_uid: claim.pods.first().map(|pod| pod.uid.clone()),
            user: None,
        },
        (None, None) => Subject::default(),
    }
}

/// Returns the subject that rules and limits apply to.
pub(crate) fn subject_of(holder: &Container) -> Subject {
    Subject {
        namespace: holder.namespace.clone(),
        pod: holder.pod.clone(),
        pod_uid: holder.pod_uid.clone(),
        user: holder.user,
    }
}
