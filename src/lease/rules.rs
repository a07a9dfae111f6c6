//! What the policy says of one create: the rules themselves are in `policy`.

use super::Leases;
use super::choose::No;
use crate::error::{Error, Result};
use crate::model::{Gpu, ProfileName, Snapshot};
use crate::placement::{self, Constraints, Rejection};
use crate::policy::{Held, Policy, Who};
use crate::request::{self, Alternative, Request};
use crate::store::{Holder, Lease, Slice};

/// What is left of a request, on what is left of the machine.
#[derive(Debug, Default)]
pub(super) struct Ruled {
    pub alternatives: Vec<Alternative>,
    /// Of each alternative one.
    pub slices: Vec<request::Slice>,
    pub min_compute: u32,
    pub excluded: Vec<(String, String)>,
    pub barred: Vec<String>,
}

impl Ruled {
    pub fn new(policy: &Policy, snapshot: &Snapshot, asked: &Request, who: &Who) -> Result<Ruled> {
        let alternatives = policy.allowed(&asked.alternatives)?;
        Ok(Ruled {
            slices: alternatives.iter().map(|a| a.slice.clone()).collect(),
            alternatives,
            min_compute: asked.min_compute,
            excluded: policy.excluded(&snapshot.gpus, who),
            barred: policy.barred(&snapshot.gpus),
        })
    }

    pub fn wanted(&self) -> Constraints<'_> {
        Constraints {
            alternatives: &self.slices,
            min_compute: self.min_compute,
            excluded: &self.excluded,
            denied_profiles: &self.barred,
            ..Constraints::default()
        }
    }
}

/// What somebody has already, and may have.
pub(super) struct Limits<'a> {
    policy: &'a Policy,
    who: Who,
    held: Vec<Held>,
}

impl<'a> Leases<'a> {
    /// To be asked under the plan's lock, so that no two take the last there is.
    pub(super) fn limits(
        &self,
        snapshot: &Snapshot,
        leases: &[Lease],
        holder: &Holder,
    ) -> Limits<'a> {
        let of_this_boot = leases.iter().filter(|l| l.boot_id == self.boot_id);
        let (policy, gpus) = (&self.config.policy, &snapshot.gpus);
        Limits::new(policy, whose(holder), gpus, of_this_boot)
    }
}

impl<'a> Limits<'a> {
    /// Of all leases of this boot.
    pub fn new<'l>(
        policy: &'a Policy,
        who: Who,
        gpus: &[Gpu],
        leases: impl IntoIterator<Item = &'l Lease>,
    ) -> Self {
        let mut counted: Vec<&Lease> = Vec::new();
        for lease in leases {
            // A slice that a pod's containers have together is one.
            let is_known = counted.iter().any(|other| other.has_instance_of(lease));
            if lease.idle_since.is_none() && !is_known {
                counted.push(lease);
            }
        }
        let held = counted.into_iter().map(|lease| Held {
            who: whose(&lease.holder),
            memory_mib: memory_of(&lease.slice, gpus),
        });
        Limits {
            policy,
            who,
            held: held.collect(),
        }
    }

    /// Whether so many more are allowed, with so much memory together.
    pub fn allow(&self, slices: u32, memory_mib: u64) -> Result<()> {
        self.policy
            .check_limits(&self.who, (slices, memory_mib), &self.held)
    }

    /// GPUs that are left out: by rules, and where even the least that is asked for is too much, since
    /// what a profile has differs by model.
    pub fn left_out(
        &self,
        snapshot: &Snapshot,
        asked: &Alternative,
        wanted: &Constraints<'_>,
    ) -> Vec<(String, String)> {
        let mut left_out = wanted.excluded.to_vec();
        if self.policy.limit.is_empty() {
            return left_out;
        }
        let others = asked.count.saturating_sub(1);
        let others = u64::from(others) * self.least_memory(snapshot, wanted);
        for one in placement::could_use(snapshot, wanted) {
            let memory = memory_on(&snapshot.gpus, &one.gpu, one.profile_id).unwrap_or(0);
            if let Err(over) = self.allow(asked.count, others + memory) {
                left_out.push((one.gpu, over.to_string()));
            }
        }
        left_out
    }

    /// The least memory that one of what is wanted can have.
    pub fn least_memory(&self, snapshot: &Snapshot, wanted: &Constraints<'_>) -> u64 {
        if self.policy.limit.is_empty() {
            return 0;
        }
        placement::could_use(snapshot, wanted)
            .iter()
            .filter_map(|a| memory_on(&snapshot.gpus, &a.gpu, a.profile_id))
            .min()
            .unwrap_or(0)
    }
}

/// What is in the way of all alternatives: a limit where nothing else may be had one day, since what is
/// too much is not waited for.
pub(super) fn all_refused(noes: Vec<Rejection>, over: Option<Error>) -> No {
    let is_never = |no: &Rejection| matches!(no, Rejection::Unsatisfiable { .. });
    match over {
        Some(e) if noes.iter().all(is_never) => No::Limit(e),
        _ => No::Room(placement::none_of(noes)),
    }
}

pub(super) fn whose(holder: &Holder) -> Who {
    Who {
        namespace: holder.namespace.clone(),
        pod: holder.pod.clone(),
        pod_uid: holder.pod_uid.clone(),
        user: holder.user,
    }
}

/// As the driver says; on a GPU that it does not show, what the profile's name says.
pub(super) fn memory_of(slice: &Slice, gpus: &[Gpu]) -> u64 {
    memory_on(gpus, &slice.gpu_uuid, slice.profile_id).unwrap_or_else(|| {
        let name: Option<ProfileName> = slice.profile.parse().ok();
        name.map_or(0, |name| u64::from(name.gigabytes) << 10)
    })
}

fn memory_on(gpus: &[Gpu], gpu: &str, profile_id: u32) -> Option<u64> {
    let gpu = gpus.iter().find(|g| g.uuid == gpu)?;
    Some(gpu.profile(profile_id)?.memory_mib)
}
