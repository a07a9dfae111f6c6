//! What the policy says of one create: the rules themselves are in `policy`.

use super::Leases;
use crate::error::{Error, Result};
use crate::model::{Gpu, Snapshot};
use crate::placement::{self, Decision, NoRoom, Reserved, Wanted};
use crate::policy::{Held, Policy, Who};
use crate::request::{self, Request};
use crate::store::{Holder, Lease, Slice};

/// What is left of a request, on what is left of the machine.
#[derive(Debug, Default)]
pub(super) struct Ruled {
    pub alternatives: Vec<request::Slice>,
    pub min_compute: u32,
    pub excluded: Vec<(String, String)>,
    pub barred: Vec<String>,
}

impl Ruled {
    pub fn new(policy: &Policy, snapshot: &Snapshot, asked: &Request, who: &Who) -> Result<Ruled> {
        Ok(Ruled {
            alternatives: policy.allowed(&asked.alternatives)?,
            min_compute: asked.min_compute,
            excluded: policy.excluded(&snapshot.gpus, who),
            barred: policy.barred(&snapshot.gpus),
        })
    }

    pub fn wanted(&self) -> Wanted<'_> {
        Wanted {
            alternatives: &self.alternatives,
            min_compute: self.min_compute,
            excluded: &self.excluded,
            barred: &self.barred,
            ..Wanted::default()
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

    /// Whether it may have anything more: what it will be is not known yet.
    pub fn allow_any(&self) -> Result<()> {
        self.policy.check_limits(&self.who, None, &self.held)
    }

    pub fn allow(&self, memory_mib: u64) -> Result<()> {
        self.policy
            .check_limits(&self.who, Some(memory_mib), &self.held)
    }

    /// The first alternative that can be had and may be had; an error where none may be had. What is
    /// too much is not waited for.
    pub fn choose<'g>(
        &self,
        snapshot: &'g Snapshot,
        reserved: &[Reserved],
        wanted: &Wanted<'_>,
    ) -> Result<std::result::Result<Decision<'g>, NoRoom>> {
        if self.policy.limit.is_empty() {
            return Ok(placement::choose(snapshot, reserved, wanted));
        }
        self.allow_any()?;
        let (mut noes, mut over): (Vec<NoRoom>, Option<Error>) = (Vec::new(), None);
        for slice in wanted.alternatives {
            let one = Wanted {
                alternatives: std::slice::from_ref(slice),
                ..*wanted
            };
            match self.choose_one(snapshot, reserved, &one) {
                Ok(Ok(decision)) => return Ok(Ok(decision)),
                Ok(Err(no)) => noes.push(no),
                Err(e) => over = over.or(Some(e)),
            }
        }
        all_refused(noes, over).map(Err)
    }

    /// The same of one alternative.
    pub fn choose_one<'g>(
        &self,
        snapshot: &'g Snapshot,
        reserved: &[Reserved],
        one: &Wanted<'_>,
    ) -> Result<std::result::Result<Decision<'g>, NoRoom>> {
        let least = placement::could_use(snapshot, one)
            .iter()
            .filter_map(|a| memory_on(&snapshot.gpus, &a.gpu, a.profile_id))
            .min();
        self.allow(least.unwrap_or(0))?;
        let tried = placement::choose(snapshot, reserved, one);
        if let Ok(decision) = &tried {
            // It may be more on a GPU of another model.
            self.allow(decision.profile.memory_mib)?;
        }
        Ok(tried)
    }
}

/// What is in the way of all alternatives: a limit where that is all there is.
pub(super) fn all_refused(noes: Vec<NoRoom>, over: Option<Error>) -> Result<NoRoom> {
    match over {
        Some(e) if noes.is_empty() => Err(e),
        _ => Ok(placement::none_of(noes)),
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
        let gb = slice.profile.split_once("g.").map_or("", |(_, gb)| gb);
        let digits = gb.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|d| d.parse().ok()).unwrap_or(0) << 10
    })
}

fn memory_on(gpus: &[Gpu], gpu: &str, profile_id: u32) -> Option<u64> {
    let gpu = gpus.iter().find(|g| g.uuid == gpu)?;
    Some(gpu.profile(profile_id)?.memory_mib)
}
