//! Slices that were given back and wait for the next that asks for their profile. Such a slice has a
//! lease of its own, of nobody: who had it is done with it in every way, and no late hook or delete of
//! that container finds it.

use super::acquire::{Applicant, random_id};
use super::reuse::is_there;
use super::{Leases, Patience, now};
use crate::error::Result;
use crate::model::{Process, Snapshot};
use crate::store::{Holder, Lease, Slice, State};
use std::time::{Duration, SystemTime};

impl Leases<'_> {
    /// In place of its end: the slice of a lease that is *releasing* is nobody's from now on, and
    /// stays. False where it is not to be kept, or cannot.
    pub(super) fn keep_idle(&self, lease: &Lease) -> Result<bool> {
        let slice = &lease.slice;
        let is_whole = slice.compute_instance.is_some() && slice.mig_uuid.is_some();
        let keeps = !self.config.keep_idle.is_zero()
            && lease.boot_id == self.boot_id
            && !lease.adopted
            && is_whole;
        if !keeps {
            return Ok(false);
        }
        let idle = Lease {
            idle_since: Some(humantime::format_rfc3339_millis(SystemTime::now()).to_string()),
            ..self.nobodys(slice.clone())?
        };
        // It is *releasing*, so whoever collects may be destroying it this very moment.
        let why = format!("release of {}", lease.holder.key.id);
        let _gpu = self.store.lock_gpu(&slice.gpu_uuid, &why)?;
        let ledger = self.store.lock("release")?;
        let Some(lease) = self.store.get(&lease.id)? else {
            // Somebody else was at it, and struck it off.
            return Ok(true);
        };
        if lease.attempt.is_some() || lease.slice.emptied {
            return Ok(false);
        }
        if self.is_anothers_too(&lease)? {
            ledger.remove(&lease)?;
            return Ok(true);
        }
        ledger.replace(&lease, &idle)?;
        tracing::info!(
            lease = idle.id,
            "{} at {} on GPU {} is kept idle",
            slice.profile,
            slice.placement,
            slice.gpu_index
        );
        Ok(true)
    }

    /// Those that can be handed out; else those that are to be destroyed first, since their time is
    /// over or they are not what they were. What was to be destroyed before is left alone.
    pub(super) fn idle(
        &self,
        snapshot: &Snapshot,
        leases: &[Lease],
        tried: &[String],
    ) -> std::result::Result<Vec<Lease>, Vec<Lease>> {
        let is_idle = |l: &&Lease| l.idle_since.is_some() && !tried.contains(&l.id);
        let idle = leases.iter().filter(is_idle).cloned();
        let (idle, over): (Vec<Lease>, Vec<Lease>) =
            idle.partition(|lease| self.is_as_it_was(snapshot, leases, lease));
        if over.is_empty() { Ok(idle) } else { Err(over) }
    }

    pub(super) fn is_as_it_was(&self, snapshot: &Snapshot, leases: &[Lease], idle: &Lease) -> bool {
        let mut others = leases.iter().filter(|l| l.id != idle.id);
        idle.boot_id == self.boot_id
            && is_there(snapshot, &idle.slice)
            && self.idle_is_over(idle).is_err()
            // Whoever handed it out was killed before it had struck this one off.
            && !others.any(|l| l.has_instance_of(idle))
    }

    /// An idle slice becomes the container's; none when it has gone since it was seen.
    pub(super) fn take_over(&self, idle: &Lease, who: &Applicant<'_>) -> Result<Option<Lease>> {
        let lease = self.draft(who, idle.slice.clone())?;
        let ledger = self.store.lock(&who.why())?;
        ledger.sweep();
        let now = self.store.get(&idle.id)?;
        let Some(now) = now.filter(|now| now.idle_since.is_some()) else {
            return Ok(None);
        };
        // To the others of its pod it is not there before it was looked over (`share`).
        let mut unseen = lease.clone();
        if lease.shared_in.is_some() {
            unseen.slice.mig_uuid = None;
        }
        ledger.replace(&now, &unseen)?;
        tracing::info!(
            lease = lease.id,
            container = who.holder.key.id,
            "{} at {} on GPU {}, which was idle, is handed out",
            lease.slice.profile,
            lease.slice.placement,
            lease.slice.gpu_index
        );
        Ok(Some(lease))
    }

    /// Why an idle slice may go; else why it stays.
    pub(super) fn idle_is_over(&self, lease: &Lease) -> std::result::Result<String, String> {
        let for_how_long = self.config.keep_idle;
        if for_how_long.is_zero() {
            return Ok("idle slices are not kept".to_owned());
        }
        // A clock that was set back would keep it for long.
        let Some(left) = idle_for(lease).and_then(|age| for_how_long.checked_sub(age)) else {
            let time = humantime::format_duration(for_how_long);
            return Ok(format!("it was idle for {time}"));
        };
        Err(format!("it is idle, for {} s more", left.as_secs()))
    }

    /// Destroys an idle slice, unless it was handed out meanwhile. One that cannot be destroyed stays on
    /// record like any other.
    pub(super) fn discard_idle(&self, idle: &Lease) {
        let handed_out = |now: &Lease| now.idle_since.is_none().then(String::new);
        if let Err(e) = self.release_unless(&idle.id, Patience::with_idle(idle), handed_out) {
            tracing::warn!(lease = idle.id, "{}", e.line());
        }
    }
}

impl Patience {
    /// The processes of its last container may have been killed a moment ago, and nobody has waited for
    /// them yet. Of several that became idle together, none is waited for after the others.
    pub(super) fn with_idle(idle: &Lease) -> Patience {
        let age = idle_for(idle).unwrap_or(Duration::MAX);
        Patience(Patience::default().0.saturating_sub(age))
    }
}

/// None where the clock was set back.
fn idle_for(lease: &Lease) -> Option<Duration> {
    let since = humantime::parse_rfc3339(lease.idle_since.as_deref()?).ok()?;
    SystemTime::now().duration_since(since).ok()
}

impl Leases<'_> {
    /// A lease of no container on a slice of this boot, to be given back.
    pub(super) fn nobodys(&self, slice: Slice) -> Result<Lease> {
        Ok(Lease {
            id: random_id()?,
            state: State::Releasing,
            boot_id: self.boot_id.clone(),
            created: now(),
            holder: Holder::default(),
            slice,
            // No process makes a container of it.
            creator: Process {
                pid: 0,
                start_time: 0,
            },
            runtime_process: None,
            init: None,
            cgroups: Vec::new(),
            attempt: None,
            idle_since: None,
            adopted: false,
            shared_in: None,
            namespaces: None,
            unknown: serde_json::Map::new(),
        })
    }
}
