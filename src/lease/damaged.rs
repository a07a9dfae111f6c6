//! Records that cannot be read, damaged or of another version. Whether such a container lives cannot
//! be found out, so nobody collects its slice; but who knows that it is gone (its own hook, its own
//! delete, the operator) gives it back by what the record's name says. So does whoever collects, where
//! the name says that no container has it.

use super::{Leases, Outcome};
use crate::error::{self, Error, Result};
use crate::gpu::Driver;
use crate::model::GpuInstance;
use crate::store::{Claim, Damaged, Key, Tie};
use std::path::Path;

impl Leases<'_> {
    pub fn damaged(&self) -> Result<Vec<Damaged>> {
        Ok(self.store.list()?.1)
    }

    /// What a hook does for its lease when that cannot be read.
    pub fn release_damaged_of(&self, lease: &str, bundle: &Path) -> Result<()> {
        let all = self.damaged()?;
        let is_it = |d: &&Damaged| d.claim.as_ref().is_some_and(|c| c.lease == lease);
        let Some(damaged) = all.iter().find(is_it) else {
            return Ok(());
        };
        let restored = self.restore(bundle, lease).err();
        let given_back = self.release_damaged(damaged);
        match (given_back, restored) {
            (Err(e), restored) => Err(e.and(restored)),
            (Ok(()), restored) => restored.map_or(Ok(()), Err),
        }
    }

    /// What a delete does, once the low-level runtime has no such container any more.
    pub(super) fn release_damaged_with(&self, key: &Key) -> Result<()> {
        let is_its = |d: &&Damaged| d.claim.as_ref().is_some_and(|c| c.is_of(key));
        let damaged = self.damaged()?;
        let its = damaged.iter().filter(is_its);
        error::all(its.map(|d| self.release_damaged(d)))
    }

    /// For who knows that its container is gone.
    pub fn release_damaged(&self, damaged: &Damaged) -> Result<()> {
        let claim = claim(damaged)?;
        // Kept until it is struck off: which one is the last of several is decided by one at a time.
        let mut lock = None;
        if claim.boot_id == self.boot_id && claim.tie != Tie::Adopted {
            let gpu = &claim.gpu_uuid;
            lock = Some(self.store.lock_gpu(gpu, "release of a damaged lease")?);
            let driver = self.driver()?;
            if let Some(instance) = self.claimed(&driver, claim)? {
                for ci in &instance.compute_instances {
                    driver.destroy_compute_instance(gpu, instance.id, ci.id)?;
                }
                driver.destroy_gpu_instance(gpu, instance.id)?;
            }
        }
        let ledger = self.store.lock("release of a damaged lease")?;
        ledger.remove_damaged(damaged)?;
        drop(lock);
        tracing::info!(
            lease = claim.lease,
            "given back by the name of its damaged record"
        );
        Ok(())
    }

    /// Strikes off what has no slice, by the driver's word, and gives back what no container has; the
    /// rest is told.
    pub(super) fn look_through_damaged(&self, dry_run: bool) -> Result<Vec<(Damaged, Outcome)>> {
        let look = |damaged: Damaged| {
            let outcome = self.look_at_damaged(&damaged, dry_run);
            (damaged, outcome.unwrap_or_else(Outcome::Failed))
        };
        Ok(self.damaged()?.into_iter().map(look).collect())
    }

    fn look_at_damaged(&self, damaged: &Damaged, dry_run: bool) -> Result<Outcome> {
        if claim(damaged)?.is_nobodys() {
            if !dry_run {
                self.release_damaged(damaged)?;
            }
            let why = "its record is damaged, and no container has it";
            return Ok(Outcome::Released(why.to_owned()));
        }
        Ok(match self.has_nothing(damaged)? {
            Ok(why) => {
                if !dry_run {
                    let ledger = self.store.lock("gc of a damaged lease")?;
                    ledger.remove_damaged(damaged)?;
                }
                Outcome::Released(why)
            }
            Err(kept) => Outcome::Kept(kept),
        })
    }

    /// Why a damaged record may be struck off; else why it stays.
    fn has_nothing(&self, damaged: &Damaged) -> Result<std::result::Result<String, String>> {
        let claim = claim(damaged)?;
        if claim.boot_id != self.boot_id {
            return Ok(Ok("its record is damaged, and its boot is over".to_owned()));
        }
        // Should its creator still be at work, it finds its record gone and undoes what it made.
        let _lock = self
            .store
            .lock_gpu(&claim.gpu_uuid, "gc of a damaged lease")?;
        let driver = self.driver()?;
        let there = match claim.tie {
            Tie::Own => self.claimed(&driver, claim)?,
            // That others have the same place says nothing of this one's container.
            Tie::Adopted | Tie::Shared | Tie::Unknown => at_its_place(&driver, claim)?,
        };
        if there.is_none() {
            return Ok(Ok(
                "its record is damaged, and there is no slice at its place".to_owned(),
            ));
        }
        Ok(Err(format!(
            "its record is damaged ({}), so whether its container lives is not known: when it is gone, \
             migctl release {}",
            damaged.why.line(),
            claim.lease
        )))
    }

    /// The slice at the claimed place, if it looks as ours do and nobody else's lease has it.
    fn claimed(&self, driver: &impl Driver, claim: &Claim) -> Result<Option<GpuInstance>> {
        let (leases, damaged) = self.store.list()?;
        let unreadable = damaged.into_iter().filter_map(|d| d.claim);
        // Of two that cannot be read, who is nobody's makes way.
        let counts = unreadable.filter(|c| c.tie == Tie::Shared || claim.is_nobodys());
        let mut elsewhere = leases.iter().map(Claim::of).chain(counts);
        // What could not be read may be read again.
        if elsewhere.any(|c| c.lease != claim.lease && c.is_at_place_of(claim)) {
            return Ok(None);
        }
        at_its_place(driver, claim)
    }
}

fn at_its_place(driver: &impl Driver, claim: &Claim) -> Result<Option<GpuInstance>> {
    let there = driver.instances_of(&claim.gpu_uuid, claim.profile_id)?;
    Ok(there
        .into_iter()
        .find(|i| i.placement == claim.placement && i.compute_instances.len() <= 1))
}

fn claim(damaged: &Damaged) -> Result<&Claim> {
    let file = damaged.file.display();
    match &damaged.claim {
        Some(claim) if claim.tie != Tie::Unknown => Ok(claim),
        // Its place is not given out, and no more than that is known of it.
        Some(_) => Err(Error::new(format!("{file} is a lease of a newer runmig"))
            .hint("give it back with the runmig that wrote it")),
        None => Err(Error::new(format!("{file} is no lease of ours"))
            .hint("remove the file; nothing depends on it")),
    }
}
