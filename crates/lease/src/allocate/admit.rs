//! Applies the policy to a request: what it admits, and which limits are left.

use super::denial::Denial;
use crate::admitted::Admitted;
use crate::error::{Error, Result};
use crate::inventory::{Inventory, memory_on};
pub(crate) use crate::inventory::{holder_subject, subject_of};
use crate::model::{GpuUuid, Snapshot};
use crate::placement::{self, Constraints, Over, Rejection};
use crate::policy::{More, Policy, Subject, Usage};
use crate::request::{Alternative, Slices};
use std::cell::RefCell;

/// Returns what the policy admits of a request; an error where that is nothing.
pub(super) fn admit(
    policy: &Policy,
    snapshot: &Snapshot,
    request: &Slices,
    subject: &Subject,
) -> Result<Admitted> {
    let alternatives = policy.allowed(&request.alternatives)?;
    Ok(Admitted {
        slices: { alternatives.iter() }
            .flat_map(Alternative::all)
            .cloned()
            .collect(),
        alternatives,
        min_compute: request.min_compute,
        excluded: policy.excluded(&snapshot.gpus, subject),
        denied_profiles: policy.denied_profiles(&snapshot.gpus),
    })
}

/// The limits of a subject, and what it holds already.
pub(super) struct Limits<'a> {
    policy: &'a Policy,
    subject: Subject,
    usage: Vec<Usage>,
}

impl<'a> Limits<'a> {
    /// Counts the leases of the inventory. A decision by it needs the plan's lock, so that no two creates
    /// take the last slice that a limit leaves.
    pub(super) fn new(policy: &'a Policy, subject: Subject, inventory: &Inventory) -> Self {
        let usage = inventory.usage();
        Limits {
            policy,
            subject,
            usage,
        }
    }

    /// The limits of a subject that holds nothing.
    pub(crate) fn without_usage(policy: &'a Policy, subject: Subject) -> Self {
        Limits {
            policy,
            subject,
            usage: Vec::new(),
        }
    }

    /// Returns the same limits for a subject that holds nothing.
    pub(super) fn of_nobody(&self) -> Limits<'a> {
        Limits::without_usage(self.policy, self.subject.clone())
    }

    /// Checks whether the subject may hold so many more slices, with so much memory together.
    pub(super) fn allow(&self, slices: u32, memory_mib: u64) -> Result<()> {
        self.check(More::slices(slices, memory_mib))
    }

    /// Checks whether the subject may hold so many more whole GPUs, with so much memory together.
    pub(super) fn allow_gpus(&self, gpus: u32, memory_mib: u64) -> Result<()> {
        self.check(More::gpus(gpus, memory_mib))
    }

    /// Checks whether the subject may hold one more share of so much memory.
    pub(super) fn allow_share(&self, memory_mib: u64) -> Result<()> {
        self.check(More::share(memory_mib))
    }

    /// Returns the limits on one share, or seat, of any size.
    ///
    /// # Errors
    /// A limit forbids one more share.
    pub(super) fn for_share(&self) -> Result<ShareLimits<'_>> {
        self.allow_share(0)?;
        Ok(ShareLimits {
            limits: self,
            hit: RefCell::default(),
        })
    }

    fn check(&self, more: More) -> Result<()> {
        self.policy.check_limits(&self.subject, more, &self.usage)
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
            let memory = memory_on(&snapshot.gpus, &one.gpu, one.profile_id).unwrap_or(0);
            if let Err(over) = self.allow(asked.count(), others + memory) {
                left_out.push((one.gpu, over.to_string()));
            }
        }
        left_out
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
            .filter_map(|a| memory_on(&snapshot.gpus, &a.gpu, a.profile_id))
            .min()
            .unwrap_or(0)
    }
}

/// The limits on one share, or seat, and the first that forbade one.
pub(super) struct ShareLimits<'a> {
    limits: &'a Limits<'a>,
    hit: RefCell<Option<Error>>,
}

impl ShareLimits<'_> {
    /// Returns the limit that forbids so many MiB more.
    pub(super) fn over(&self, mib: u64) -> Option<Over> {
        let over = self.limits.allow_share(mib).err()?;
        let words = over.to_string();
        self.hit.borrow_mut().get_or_insert(over);
        let is_final = self.limits.of_nobody().allow_share(mib).is_err();
        Some(Over { words, is_final })
    }

    /// Returns the denial for a shortage. A request above a limit is not queued, unless it can be had elsewhere one
    /// day: the shortage may pass.
    pub(super) fn denial<R>(&self, shortage: R, may_pass: bool) -> Denial<R> {
        match self.hit.take() {
            Some(over) if !may_pass => Denial::Limit(over),
            _ => Denial::Room(shortage),
        }
    }
}

/// Joins the denials of all alternatives. A limit counts where no alternative can be had one day, since a
/// request above a limit is not queued.
pub(crate) fn all_denied(noes: Vec<Rejection>, over: Option<Error>) -> Denial {
    let is_never = |no: &Rejection| matches!(no, Rejection::Unsatisfiable { .. });
    match over {
        Some(e) if noes.iter().all(is_never) => Denial::Limit(e),
        _ => Denial::Room(Rejection::of_all(noes)),
    }
}
