//! Giving a slice back: destroyed, confirmed by the driver, and only then struck off.

use super::{Leases, alive, now, try_lock_bundle};
use crate::error::{self, Error, Result, printable};
use crate::gpu::{DriverError, Inventory, Mig, nodes};
use crate::model::ListedInstance;
use crate::process::{self, Holders};
use crate::spec::bundle::Bundle;
use crate::store::{Attempt, Key, Lease, State};
use std::path::Path;
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

    /// An instance that was in use before is not waited for again.
    pub fn with(lease: &Lease) -> Patience {
        match lease.attempt {
            Some(_) => Patience::NONE,
            None => Patience::default(),
        }
    }
}

/// Between tries to give back what cannot be destroyed: 2 s, doubled each time, up to this.
const MAX_GAP: Duration = Duration::from_secs(300);

/// How many of a slice's holders are written down: for people, in a record of a bounded size.
const MAX_HOLDERS: usize = 32;

/// How often a record may change while it is judged: more often than anything that lives changes it.
const MAX_LOOKS: usize = 16;

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
        self.release_unless(id, patience, |_| None).map(drop)
    }

    /// Ends a lease unless something speaks against it. That is asked without a lock, since nobody is to
    /// wait for who looks at processes; so it counts only if the record is the same under the ledger's
    /// lock. One that was read while the creator lived may not name the low-level runtime yet that
    /// goes on without it. Once it is marked, nobody writes such a thing.
    pub fn release_unless(
        &self,
        id: &str,
        patience: Patience,
        against: impl Fn(&Lease) -> Option<String>,
    ) -> Result<Returned> {
        let Some(mut lease) = self.store.get(id)? else {
            return Ok(Returned::Yes);
        };
        let mut looks = 0;
        let ledger = loop {
            if let Some(why) = against(&lease) {
                return Ok(Returned::No(why));
            }
            let ledger = self.store.lock("release")?;
            let Some(now) = self.store.get(id)? else {
                return Ok(Returned::Yes);
            };
            if now == lease {
                break ledger;
            }
            looks += 1;
            if looks == MAX_LOOKS {
                return Ok(Returned::No("its record changes all the time".to_owned()));
            }
            lease = now;
        };
        // Only what is given back for the first time is kept: who ends an idle one wants its room, and
        // what could not be destroyed is not fit for anybody.
        let keeps = lease.state != State::Releasing;
        lease.state = State::Releasing;
        let was_idle = lease.idle_since.take().is_some();
        // What cannot be written (a full disk) keeps no slice back: its container is as gone without
        // the mark, and the next one starts from the beginning.
        if let Err(e) = ledger.put(&lease) {
            // But what another container could take or share as long as it is not marked.
            if was_idle || lease.shared_in.is_some() {
                return Err(e);
            }
            tracing::warn!(lease = id, "{}", e.line());
        }
        drop(ledger);
        self.finish(&lease, patience, keeps).map(|()| Returned::Yes)
    }

    fn finish(&self, lease: &Lease, patience: Patience, keeps: bool) -> Result<()> {
        // The bundle is put right whether or not the driver lets go: they do not depend on each
        // other, and every failure is told.
        let restored = self.restore(&lease.holder.bundle, &lease.id).err();
        match keeps.then(|| self.keep_idle(lease)) {
            Some(Ok(true)) => return restored.map_or(Ok(()), Err),
            Some(Err(e)) => tracing::warn!(lease = lease.id, "not kept idle: {}", e.line()),
            Some(Ok(false)) | None => {}
        }
        if let Err(e) = self.destroy(lease, patience) {
            let holders = self.holders(lease);
            let unseen = holders.unseen.map(|why| {
                Error::new(format!("cannot tell whether more processes hold it: {why}"))
            });
            let e = e.and(unseen).and(restored);
            let held_by = holders.seen.into_iter().take(MAX_HOLDERS);
            let held_by = held_by.map(|(pid, name)| format!("{pid} {name}")).collect();
            let noted = self.mark(&lease.id, |l| {
                l.attempt = Some(next_attempt(l.attempt.as_ref(), &e, held_by));
            });
            tracing::warn!(lease = lease.id, "{}", e.line());
            return Err(e.and(noted.err()));
        }
        self.store.lock("release")?.remove(lease)?;
        tracing::info!(
            lease = lease.id,
            container = lease.holder.key.id,
            "{} at {} on GPU {} is given back",
            lease.slice.profile,
            lease.slice.placement,
            lease.slice.gpu_index
        );
        restored.map_or(Ok(()), Err)
    }

    /// Writes down how far a release has come. What cannot be written (a full disk) keeps no slice
    /// back: its container is as gone without the mark, and the next one starts from the beginning.
    fn mark(&self, id: &str, change: impl FnOnce(&mut Lease)) -> Result<Option<Lease>> {
        let ledger = self.store.lock("release")?;
        ledger.update(id, change).or_else(|e| {
            let lease = self.store.get(id)?;
            tracing::warn!(lease = id, "{}", e.line());
            Ok(lease)
        })
    }

    /// After a delete: gives back what the container has, if it is gone. `deleted` says that the
    /// low-level runtime has it no more.
    pub fn release_if_dead(&self, key: &Key, deleted: bool) -> Result<()> {
        // Another low-level runtime with the same root says that it has no such container.
        let damaged = match deleted && !alive::lives_on_record(key) {
            true => self.release_damaged_with(key),
            false => Ok(()),
        };
        let leases = self.of(key)?;
        let against = |now: &Lease| match now.state {
            State::Releasing => None,
            _ => alive::sign_of_life(now),
        };
        let released = leases.iter().map(|lease| {
            let life = match lease.state {
                State::Releasing => None,
                _ => lasting(|| alive::sign_of_life(lease)),
            };
            let returned = match life {
                Some(life) => Returned::No(life),
                None => self.release_unless(&lease.id, Patience::with(lease), against)?,
            };
            match returned {
                // A create of the same id that came meanwhile is none of this delete's business.
                Returned::No(life) if deleted && alive::is_made_by_others(lease).is_none() => {
                    Err(stays(lease, &life))
                }
                _ => Ok(()),
            }
        });
        error::all(std::iter::once(damaged).chain(released))
    }

    /// By its creator, whose low-level runtime failed, was killed or is done: gives back what it has,
    /// unless it lives on without them.
    pub fn release_if_over(&self, id: &str, patience: Patience) -> Result<Returned> {
        if let Some(lease) = self.store.get(id)? {
            lasting(|| alive::outlives_its_front(&lease));
        }
        self.release_unless(id, patience, alive::outlives_its_front)
    }

    /// Engines take the bundle away before or after us: one that is gone needs nothing. Where another
    /// create of the same bundle is at work, that makes its own of what it finds there.
    pub(super) fn restore(&self, path: &Path, lease: &str) -> Result<()> {
        if !Bundle::answers(path) {
            let bundle = printable(&path.to_string_lossy());
            tracing::warn!(
                lease,
                "bundle {bundle} is left as it is: its file system does not answer"
            );
            return Ok(());
        }
        if !path.exists() {
            return Ok(());
        }
        let bundle = Bundle::open(path)?;
        let is_ours = self.locked_bundle.as_deref() == Some(path);
        let lock = match is_ours {
            true => None,
            false => try_lock_bundle(&self.store, &bundle)?,
        };
        if !is_ours && lock.is_none() {
            return Ok(());
        }
        bundle.restore(lease).map(drop)
    }

    fn destroy(&self, lease: &Lease, patience: Patience) -> Result<()> {
        // What is an administrator's stays.
        if lease.boot_id != self.boot_id || lease.adopted {
            return Ok(());
        }
        let end = Instant::now() + patience.0;
        let mut gap = Duration::from_millis(10);
        loop {
            match self.try_destroy(lease)? {
                Ok(()) => return Ok(()),
                Err(e) if e.is_in_use() && Instant::now() + gap < end => {
                    std::thread::sleep(gap);
                    gap = (gap * 2).min(Duration::from_millis(500));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The GPU is locked for one try: nobody else is to wait for whoever holds this instance.
    fn try_destroy(&self, lease: &Lease) -> Result<std::result::Result<(), DriverError>> {
        let gpu = &lease.slice.gpu_uuid;
        let _lock = self
            .store
            .lock_gpu(gpu, &format!("release of {}", lease.holder.key.id))?;
        // Somebody else may have been at it while we waited for the GPU, and struck it off.
        let Some(lease) = self.store.get(&lease.id)? else {
            return Ok(Ok(()));
        };
        if self.strike_off_beside_others(&lease)? {
            return Ok(Ok(()));
        }
        let driver = self.driver()?;
        let Some(instance) = self.find(&driver, &lease)? else {
            return Ok(Ok(()));
        };
        if let Some(ci) = compute_instance(&lease, &instance) {
            if let Err(e) = driver.destroy_compute_instance(gpu, instance.id, ci) {
                return Ok(Err(e));
            }
            let left = self.find(&driver, &lease)?;
            if left.is_some_and(|i| compute_instance(&lease, &i).is_some()) {
                return Err(still_there(
                    &format!("compute instance {ci} of the"),
                    &lease,
                ));
            }
            self.mark(&lease.id, |l| l.slice.emptied = true)?;
        }
        if let Err(e) = driver.destroy_gpu_instance(gpu, instance.id) {
            return Ok(Err(e));
        }
        let left = driver.instances_of(gpu, instance.profile_id)?;
        if left
            .iter()
            .any(|i| (i.id, i.placement) == (instance.id, instance.placement))
        {
            return Err(still_there("the", &lease));
        }
        Ok(Ok(()))
    }

    /// An instance goes with the last of its leases: which one that is, is decided where it is written.
    fn strike_off_beside_others(&self, lease: &Lease) -> Result<bool> {
        let ledger = self.store.lock("release")?;
        let is_anothers = self.is_anothers_too(lease)?;
        if is_anothers {
            ledger.remove(lease)?;
        }
        Ok(is_anothers)
    }

    /// The processes that have the instance's capabilities open.
    pub(super) fn holders(&self, lease: &Lease) -> Holders {
        let Some(gi) = lease.slice.gpu_instance else {
            return Holders::default();
        };
        let (files, devices) =
            nodes::capabilities_of(&self.config.driver.root, lease.slice.gpu_minor, gi);
        process::holders_of(&files, &devices)
    }

    /// The instance of a lease, if it is still what we made. GPU instance ids and MIG UUIDs come
    /// again, so profile and placement must be right as well; and where nothing of ours can hold a
    /// compute instance, one that does is somebody else's.
    pub(super) fn find(
        &self,
        driver: &impl Inventory,
        lease: &Lease,
    ) -> Result<Option<ListedInstance>> {
        let slice = &lease.slice;
        let listed = driver.instances_of(&slice.gpu_uuid, slice.profile_id)?;
        let there = listed.into_iter().find(|i| i.placement == slice.placement);
        let Some(id) = slice.gpu_instance else {
            // Killed between the intent and the record of the instance: it lies where it was to lie.
            // A compute instance is only made in one that is on record.
            return Ok(there.filter(|i| i.compute_instances.is_empty()));
        };
        let Some(there) = there.filter(|i| i.id == id) else {
            return Ok(None);
        };
        if slice.emptied && !there.compute_instances.is_empty() {
            return Ok(None);
        }
        if let (Some(ci), Some(uuid)) = (slice.compute_instance, &slice.mig_uuid)
            && there.compute_instances.iter().any(|c| c.id == ci)
            && driver.mig_uuid(&slice.gpu_uuid, id, ci)? != *uuid
        {
            return Ok(None);
        }
        Ok(Some(there))
    }
}

/// The error of a delete that leaves the slice with its container.
fn stays(lease: &Lease, life: &str) -> Error {
    let id = crate::error::printable(&lease.holder.key.id);
    Error::new(format!(
        "cannot give back slice {} of GPU {} with container {id}: {life}",
        lease.slice.profile, lease.slice.gpu_index
    ))
    .hint("run migctl gc as root on the host once that is over")
}

/// A sign of life that stays: a container that was just killed takes a moment to be gone.
pub(super) fn lasting(sign_of_life: impl Fn() -> Option<String>) -> Option<String> {
    let mut gap = Duration::from_millis(1);
    loop {
        let sign = sign_of_life()?;
        if gap >= Duration::from_millis(200) {
            return Some(sign);
        }
        std::thread::sleep(gap);
        gap *= 2;
    }
}

/// Ours, if it is there. Compute instances that somebody else made beside it stay, and the driver
/// refuses to destroy what they lie in.
fn compute_instance(lease: &Lease, instance: &ListedInstance) -> Option<u32> {
    match (
        lease.slice.compute_instance,
        instance.compute_instances.as_slice(),
    ) {
        (Some(id), there) => there.iter().any(|c| c.id == id).then_some(id),
        // Killed between making it and putting it on record.
        (None, [only]) => Some(only.id),
        (None, _) => None,
    }
}

fn still_there(what: &str, lease: &Lease) -> Error {
    let (at, gpu) = (lease.slice.placement, &lease.slice.gpu_uuid);
    Error::new(format!(
        "{what} GPU instance at {at} on GPU {gpu} is still there after the driver destroyed it"
    ))
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

/// Whether a lease that could not be released is to be tried again by itself now.
pub(super) fn is_due(lease: &Lease) -> bool {
    lease.attempt.as_ref().is_none_or(|a| a.next <= now())
}
