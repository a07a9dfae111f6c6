//! Giving a slice back: destroyed, confirmed by the driver, and only then struck off.

use super::{Leases, alive, now};
use crate::error::{Error, Result};
use crate::gpu::{Driver, DriverError, nodes};
use crate::model::GpuInstance;
use crate::process;
use crate::spec::bundle::Bundle;
use crate::store::{Attempt, Key, Lease, State};
use std::time::{Duration, Instant, SystemTime};

/// How long an instance that is in use is tried again.
#[derive(Clone, Copy, Debug)]
pub struct Patience(pub Duration);

impl Default for Patience {
    /// A process that was just killed is let go of by the driver within this.
    fn default() -> Self {
        Patience(Duration::from_secs(3))
    }
}

impl Patience {
    /// One try: for those who have other things to do.
    pub const NONE: Patience = Patience(Duration::ZERO);
}

/// Between tries to give back what cannot be destroyed: 2 s, doubled each time, up to this.
const MAX_GAP: Duration = Duration::from_secs(300);

/// How many of a slice's holders are written down: for people, in a record of a bounded size.
const MAX_HOLDERS: usize = 32;

/// What became of a lease that was to be given back.
#[derive(Debug, PartialEq, Eq)]
pub enum Returned {
    /// It is gone, now or before.
    Yes,
    /// Nothing was done, and why.
    No(String),
}

impl Leases<'_> {
    /// Ends a lease, whatever state it is in. One that is gone already is fine.
    pub fn release(&self, id: &str, patience: Patience) -> Result<()> {
        let marked = self
            .store
            .lock("release")?
            .update(id, |l| l.state = State::Releasing)?;
        let Some(lease) = marked else { return Ok(()) };
        // The bundle is put right whether or not the driver lets go: they do not depend on each
        // other, and every failure is told.
        let restored = restore(&lease).err();
        let destroyed = self.destroy(&lease, patience);
        let ledger = self.store.lock("release")?;
        match destroyed {
            Ok(()) => {
                ledger.remove(&lease)?;
                tracing::info!(
                    lease = lease.id,
                    container = lease.holder.key.id,
                    "{} at {} on GPU {} is given back",
                    lease.slice.profile,
                    lease.slice.placement,
                    lease.slice.gpu_index
                );
                match restored {
                    Some(e) => Err(e),
                    None => Ok(()),
                }
            }
            Err(e) => {
                let held_by = self.holders(&lease);
                ledger.update(id, |l| {
                    l.attempt = Some(next_attempt(l.attempt.as_ref(), &e, held_by));
                })?;
                tracing::warn!(lease = lease.id, "{}", e.line());
                Err(e.and(restored))
            }
        }
    }

    /// Ends a lease whose creator is dead, unless something speaks against it. That is asked of the
    /// record as it is now: one that was read while the creator lived may not name the low-level
    /// runtime yet that goes on without it. From here on nobody writes such a thing.
    pub fn release_unless(
        &self,
        id: &str,
        patience: Patience,
        against: impl FnOnce(&Lease) -> Option<String>,
    ) -> Result<Returned> {
        if let Some(why) = self.store.get(id)?.as_ref().and_then(against) {
            return Ok(Returned::No(why));
        }
        self.release(id, patience).map(|()| Returned::Yes)
    }

    /// After a delete: gives back what the container has, if it is gone.
    pub fn release_if_dead(&self, key: &Key, patience: Patience) -> Result<()> {
        let mut failed: Option<Error> = None;
        for lease in self.of(key)? {
            if lease.state != State::Releasing && dies_not(|| alive::sign_of_life(&lease)) {
                continue;
            }
            let against = |now: &Lease| match now.state {
                State::Releasing => None,
                _ => alive::sign_of_life(now),
            };
            if let Err(e) = self.release_unless(&lease.id, patience, against) {
                failed = Some(match failed {
                    Some(first) => first.and(Some(e)),
                    None => e,
                });
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// By its creator, whose low-level runtime failed, was killed or is done: gives back what it has,
    /// unless it lives on without them.
    pub fn release_if_over(&self, id: &str, patience: Patience) -> Result<Returned> {
        if let Some(lease) = self.store.get(id)? {
            dies_not(|| alive::outlives_its_front(&lease));
        }
        self.release_unless(id, patience, alive::outlives_its_front)
    }

    fn destroy(&self, lease: &Lease, patience: Patience) -> Result<()> {
        if lease.boot_id != self.boot_id {
            return Ok(());
        }
        let gpu = &lease.slice.gpu_uuid;
        let _lock = self
            .store
            .lock_gpu(gpu, &format!("release of {}", lease.holder.key.id))?;
        // Somebody else may have been at it while we waited for the GPU, and struck it off.
        let Some(lease) = self.store.get(&lease.id)? else {
            return Ok(());
        };
        let driver = self.driver()?;
        let Some(instance) = self.find(&driver, &lease)? else {
            return Ok(());
        };

        let end = Instant::now() + patience.0;
        let mut gap = Duration::from_millis(10);
        loop {
            match try_destroy(&driver, &lease, &instance) {
                Ok(()) => break,
                Err(e) if e.is_in_use() && Instant::now() + gap < end => {
                    std::thread::sleep(gap);
                    gap = (gap * 2).min(Duration::from_millis(500));
                }
                Err(e) => return Err(e.into()),
            }
        }
        match driver.instance(gpu, instance.id)? {
            Some(still) if still.placement == instance.placement => Err(Error::new(format!(
                "GPU instance {} on GPU {gpu} is still there after the driver destroyed it",
                instance.id
            ))),
            _ => Ok(()),
        }
    }

    /// The processes that have the instance's capabilities open, for the operator.
    fn holders(&self, lease: &Lease) -> Vec<String> {
        let Some(gi) = lease.slice.gpu_instance else {
            return Vec::new();
        };
        let (files, devices) =
            nodes::capabilities_of(&self.config.driver.root, lease.slice.gpu_minor, gi);
        let holders = process::holders_of(&files, &devices);
        holders
            .into_iter()
            .take(MAX_HOLDERS)
            .map(|(pid, name)| format!("{pid} {name}"))
            .collect()
    }

    /// The instance of a lease: what was recorded, if it is still what we made. GI ids and MIG UUIDs
    /// come again, so profile and placement must be right as well.
    fn find(&self, driver: &impl Driver, lease: &Lease) -> Result<Option<GpuInstance>> {
        let slice = &lease.slice;
        let same =
            |i: &GpuInstance| i.profile_id == slice.profile_id && i.placement == slice.placement;
        let Some(id) = slice.gpu_instance else {
            // Killed between the intent and the record of the instance: it lies where it was to lie.
            let there = driver.instances(&slice.gpu_uuid)?.into_iter().find(same);
            let (leases, _) = self.store.list()?;
            return Ok(there.filter(|i| {
                !leases.iter().any(|other| {
                    other.id != lease.id
                        && other.slice.gpu_uuid == slice.gpu_uuid
                        && other.slice.gpu_instance == Some(i.id)
                })
            }));
        };
        let Some(there) = driver.instance(&slice.gpu_uuid, id)?.filter(same) else {
            return Ok(None);
        };
        if let (Some(ci), Some(uuid)) = (slice.compute_instance, &slice.mig_uuid)
            && there.compute_instances.iter().any(|c| c.id == ci)
            && driver.mig_uuid(&slice.gpu_uuid, id, ci)? != *uuid
        {
            return Ok(None);
        }
        Ok(Some(there))
    }
}

/// A container that was just killed takes a moment to be gone.
fn dies_not(sign_of_life: impl Fn() -> Option<String>) -> bool {
    let mut gap = Duration::from_millis(1);
    while gap < Duration::from_millis(200) {
        if sign_of_life().is_none() {
            return false;
        }
        std::thread::sleep(gap);
        gap *= 2;
    }
    true
}

/// Our compute instance, then the GPU instance. Compute instances that somebody else made in it stay,
/// and the driver refuses the rest.
fn try_destroy(
    driver: &impl Driver,
    lease: &Lease,
    instance: &GpuInstance,
) -> std::result::Result<(), DriverError> {
    let gpu = &lease.slice.gpu_uuid;
    let ours = match (
        lease.slice.compute_instance,
        instance.compute_instances.as_slice(),
    ) {
        (Some(id), _) => Some(id),
        (None, [only]) => Some(only.id),
        (None, _) => None,
    };
    if let Some(ci) = ours {
        driver.destroy_compute_instance(gpu, instance.id, ci)?;
    }
    driver.destroy_gpu_instance(gpu, instance.id)
}

fn next_attempt(last: Option<&Attempt>, e: &Error, held_by: Vec<String>) -> Attempt {
    let count = last.map_or(0, |a| a.count) + 1;
    let gap = Duration::from_secs(1u64 << count.min(20)).min(MAX_GAP);
    Attempt {
        count,
        error: e.line(),
        held_by,
        next: humantime::format_rfc3339_seconds(SystemTime::now() + gap).to_string(),
    }
}

/// Engines take the bundle away before or after us: one that is gone needs nothing.
fn restore(lease: &Lease) -> Result<()> {
    if !lease.holder.bundle.exists() {
        return Ok(());
    }
    Bundle::open(&lease.holder.bundle)?
        .restore(&lease.id)
        .map(drop)
}

/// Whether a lease that could not be released is to be tried again by itself now.
pub(super) fn is_due(lease: &Lease) -> bool {
    lease.attempt.as_ref().is_none_or(|a| a.next <= now())
}
