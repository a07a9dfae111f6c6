//! Applies the policy to a request on a machine: what it admits, and which limits are left.

use super::found::Denial;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::inventory::{Inventory, memory_on};
use crate::model::{GpuUuid, Snapshot};
use crate::placement::Admitted;
use crate::placement::{self, Constraints, NoRoom, Over, Reservation};
use crate::policy::{Kind, Policy, Subject, Usage};
use crate::queue;
use crate::request::{Alternative, Slices};
use std::cell::RefCell;

/// A machine at one moment, and the requester on it.
pub(super) struct Machine<'a, D> {
    pub config: &'a Config,
    pub driver: &'a D,
    pub inventory: &'a Inventory,
    pub subject: Subject,
}

impl<'a, D: Queries> Machine<'a, D> {
    /// Returns the limits on the requester, with all that it holds.
    pub(super) fn limits(&self) -> Limits<'a> {
        let usage = self.inventory.usage();
        Limits::new(&self.config.policy, self.subject.clone(), usage)
    }

    /// Returns the same limits on a requester that holds nothing.
    pub(super) fn limits_of_nobody(&self) -> Limits<'a> {
        Limits::new(&self.config.policy, self.subject.clone(), Vec::new())
    }

    /// Returns the GPUs that rules keep from the requester, with the rule in words.
    pub(super) fn excluded(&self) -> Vec<(GpuUuid, String)> {
        let gpus = &self.inventory.snapshot.gpus;
        self.config.policy.excluded(gpus, &self.subject)
    }

    /// Returns the part of a request for slices that the policy admits.
    ///
    /// # Errors
    /// It admits nothing.
    pub(super) fn admit(&self, slices: &Slices) -> Result<Admitted> {
        let (policy, inventory) = (&self.config.policy, self.inventory);
        let alternatives = policy.allowed(&slices.alternatives)?;
        let slices_of_all = alternatives.iter().flat_map(Alternative::all);
        Ok(Admitted {
            slices: slices_of_all.cloned().collect(),
            alternatives,
            min_compute: slices.min_compute,
            excluded: self.excluded(),
            denied_profiles: policy.denied_profiles(&inventory.snapshot.gpus),
            ours: inventory.ours(),
            blockers: queue::reservations(&inventory.waiting),
            unfit: inventory.held_gpus(),
        })
    }
}

/// The limits of a subject, and what it holds already.
pub(super) struct Limits<'a> {
    policy: &'a Policy,
    subject: Subject,
    usage: Vec<Usage>,
}

impl<'a> Limits<'a> {
    /// `usage`: what the machine's subjects hold. A decision by it needs the plan's lock, so that no two creates take the last
    /// slice that a limit leaves.
    pub(crate) fn new(policy: &'a Policy, subject: Subject, usage: Vec<Usage>) -> Self {
        Limits {
            policy,
            subject,
            usage,
        }
    }

    /// Checks whether the subject may hold so many more of a kind, with so much memory together.
    pub(super) fn allow(&self, kind: Kind, count: u32, memory_mib: u64) -> Result<()> {
        let (policy, subject) = (self.policy, &self.subject);
        policy.check_limits(subject, kind, count, memory_mib, &self.usage)
    }

    /// Returns the limits on one share, or seat, of any size.
    ///
    /// # Errors
    /// A limit forbids one more share.
    pub(super) fn for_share(&self) -> Result<ShareLimits<'_>> {
        self.allow(Kind::Share, 1, 0)?;
        Ok(ShareLimits {
            limits: self,
            hit: RefCell::default(),
        })
    }

    /// Returns the GPUs that rules exclude, and those on which the wanted slice of a request is more than a limit allows,
    /// even with the least that the others can be: the memory of a profile differs by model.
    pub(super) fn excluded(
        &self,
        snapshot: &Snapshot,
        asked: &Alternative,
        wanted: &Constraints<'_>,
    ) -> Vec<(GpuUuid, String)> {
        let mut left_out = wanted.excluded.to_vec();
        if self.policy.limit.is_empty() {
            return left_out;
        }
        let all = self.least_of(snapshot, asked, wanted);
        let others = all.saturating_sub(self.least_memory(snapshot, wanted));
        for one in placement::could_use(snapshot, wanted) {
            let memory = memory_on(snapshot, &one.gpu, one.profile_id).unwrap_or(0);
            if let Err(over) = self.allow(Kind::Slice, asked.count(), others + memory) {
                left_out.push((one.gpu, over.to_string()));
            }
        }
        left_out
    }

    /// Returns what one alternative of a request could use. A request does not wait for a slice that these limits would not
    /// leave it, nor for one that no empty machine has.
    pub(super) fn could_use(
        &self,
        snapshot: &Snapshot,
        asked: &Alternative,
        wanted: &Constraints<'_>,
    ) -> Vec<Reservation> {
        let of_slice = |slice| {
            let wanted = wanted.of(slice);
            let excluded = self.excluded(snapshot, asked, &wanted);
            let wanted = Constraints {
                excluded: &excluded,
                ..wanted
            };
            match placement::never_several(snapshot, asked, &wanted) {
                Some(_) => Vec::new(),
                None => placement::could_use(snapshot, &wanted),
            }
        };
        asked.all().flat_map(of_slice).collect()
    }

    /// Returns the least memory, in MiB, that the slices of a request can have together.
    pub(super) fn least_of(
        &self,
        snapshot: &Snapshot,
        asked: &Alternative,
        wanted: &Constraints<'_>,
    ) -> u64 {
        let least = |slice| self.least_memory(snapshot, &wanted.of(slice));
        asked.all().map(least).sum()
    }

    /// Returns the least memory, in MiB, that one of the wanted slices can have.
    pub(crate) fn least_memory(&self, snapshot: &Snapshot, wanted: &Constraints<'_>) -> u64 {
        if self.policy.limit.is_empty() {
            return 0;
        }
        placement::could_use(snapshot, wanted)
            .iter()
            .filter_map(|a| memory_on(snapshot, &a.gpu, a.profile_id))
            .min()
            .unwrap_or(0)
    }
}

/// The limits on one share, or seat, and the last that forbade one.
pub(super) struct ShareLimits<'a> {
    limits: &'a Limits<'a>,
    hit: RefCell<Option<Error>>,
}

impl ShareLimits<'_> {
    /// Returns the limit that forbids so many MiB more.
    pub(super) fn over(&self, mib: u64) -> Option<Over> {
        let over = self.limits.allow(Kind::Share, 1, mib).err()?;
        let words = over.to_string();
        self.hit.replace(Some(over));
        let nobody = Limits::new(self.limits.policy, self.limits.subject.clone(), Vec::new());
        let is_final = nobody.allow(Kind::Share, 1, mib).is_err();
        Some(Over { words, is_final })
    }

    /// Returns the denial of a request without room. `over`: another limit in its way.
    pub(super) fn denial(&self, over: Option<Error>, no: Box<NoRoom>) -> Denial {
        Denial::new(no.may_pass(), over.or(self.hit.take()), no)
    }
}
