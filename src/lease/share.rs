//! One slice for the containers of a pod that say so. Each has a lease of its own on the same
//! instance, and the instance goes with the last of them: whoever ends one looks, under the ledger's
//! lock, whether another is there, and strikes off its own in the same moment. A lease that is being
//! given back is not shared any more, so no new one comes while the last one goes.

use super::acquire::Applicant;
use super::reuse::{is_there, of_what_is_there, only, slot_of};
use super::{Leases, Patience, alive};
use crate::error::{Error, Result, printable};
use crate::gpu::Inventory;
use crate::model::{ListedInstance, Snapshot};
use crate::placement::{self, Constraints};
use crate::request;
use crate::store::{Claim, Holder, Lease, State};
use std::time::{Duration, Instant};

/// Another container of the pod.
pub(super) enum Peer {
    /// It has the slice; this is our lease on it.
    Has(Box<Lease>),
    /// It makes the slice.
    Makes(Box<Lease>),
}

impl Leases<'_> {
    /// What others of the pod have, put on record as ours too.
    pub(super) fn share(
        &self,
        driver: &impl Inventory,
        (snapshot, leases): (&Snapshot, &[Lease]),
        wanted: &Constraints<'_>,
        who: &Applicant<'_>,
    ) -> Result<Option<Peer>> {
        let Some(pod) = &who.asked.shared_in else {
            return Ok(None);
        };
        let is_peer = |l: &Lease| {
            l.shared_in.as_ref() == Some(pod)
                && l.boot_id == self.boot_id
                && l.state != State::Releasing
        };
        for peer in leases.iter().filter(|l| is_peer(l)) {
            if peer.slice.mig_uuid.is_none() {
                return Ok(Some(Peer::Makes(Box::new(peer.clone()))));
            }
            // What an administrator took away, or a reset, is nothing to share. It may also have been
            // made since the driver was asked.
            if !is_there(snapshot, &peer.slice) && self.find_of(driver, peer)?.is_none() {
                continue;
            }
            check_same(snapshot, peer, wanted, who)?;
            let mut lease = self.draft(who, peer.slice.clone())?;
            lease.adopted = peer.adopted;
            let ledger = self.store.lock(&who.why())?;
            // Asked again: it may have gone since we looked.
            if self.store.get(&peer.id)?.is_some_and(|now| is_peer(&now)) {
                ledger.sweep();
                ledger.put(&lease)?;
                tracing::info!(
                    lease = lease.id,
                    container = who.holder.key.id,
                    "shares the slice of container {}",
                    peer.holder.key.id
                );
                return Ok(Some(Peer::Has(Box::new(lease))));
            }
        }
        Ok(None)
    }

    /// The pod's slice; where that cannot be found out, no other is made for it.
    fn find_of(&self, driver: &impl Inventory, peer: &Lease) -> Result<Option<ListedInstance>> {
        let found = self.find(driver, peer);
        found.map_err(|e| does_not_answer(peer).caused_by(e))
    }

    /// Until a slice that another container of the pod makes is there, or that one has given up; an
    /// error where that takes too long.
    pub(super) fn wait_for(
        &self,
        peer: &Lease,
        who: &Holder,
        awaited: &mut Option<(String, Instant)>,
    ) -> Result<()> {
        // It has the GPU's lock while it makes the slice, or queues for it.
        let why = format!("create of {}", who.key.id);
        drop(self.store.lock_gpu(&peer.slice.gpu_uuid, &why)?);
        let made = |now: &Lease| now.slice.mig_uuid.is_some().then(String::new);
        let against = |now: &Lease| made(now).or_else(|| alive::sign_of_life(now));
        if let Err(e) = self.release_unless(&peer.id, Patience::NONE, against) {
            tracing::warn!(lease = peer.id, "{}", e.line());
        }
        // It may just not have come to the lock yet, or looks over what was there already.
        let since = match awaited {
            Some((id, since)) if *id == peer.id => *since,
            _ => awaited.insert((peer.id.clone(), Instant::now())).1,
        };
        let waited = since.elapsed();
        if waited < self.config.lock_timeout {
            let gap = waited / 8;
            std::thread::sleep(gap.clamp(Duration::from_millis(2), Duration::from_millis(200)));
            return Ok(());
        }
        Err(Error::new(format!(
            "container {} of the same pod makes the slice for all of them (process {}), waited {}",
            printable(&peer.holder.key.id),
            peer.creator.pid,
            humantime::format_duration(self.config.lock_timeout)
        ))
        .hint("lock_timeout in the configuration is how long to wait"))
    }

    /// Whether the instance of a lease is another's too, whose end will be its end. Asked under the
    /// ledger's lock.
    pub(super) fn is_anothers_too(&self, lease: &Lease) -> Result<bool> {
        let neighbours = self.store.neighbours(&Claim::of(lease))?;
        Ok(neighbours.have_instance_of(lease))
    }
}

fn does_not_answer(peer: &Lease) -> Error {
    Error::new(format!(
        "container {} of the same pod has its slice on GPU {}, which does not answer",
        printable(&peer.holder.key.id),
        peer.slice.gpu_uuid
    ))
}

/// Containers that have one slice together ask for the same.
fn check_same(
    snapshot: &Snapshot,
    peer: &Lease,
    wanted: &Constraints<'_>,
    who: &Applicant<'_>,
) -> Result<()> {
    let (gpu, mut unread) = (&peer.slice.gpu_uuid, snapshot.unreadable.iter());
    if !snapshot.gpus.iter().any(|g| g.uuid == *gpu)
        && let Some((_, why)) = unread.find(|(index, _)| *index == peer.slice.gpu_index)
    {
        return Err(does_not_answer(peer).caused_by(Error::new(why.clone())));
    }
    let there = only(snapshot, &[slot_of(&peer.slice)]);
    if placement::choose(&there, &[], &of_what_is_there(wanted)).is_ok() {
        return Ok(());
    }
    Err(Error::new(format!(
        "container {} of the same pod has a {} for all of them, and this one asks for {}",
        printable(&peer.holder.key.id),
        peer.slice.profile,
        request::written(&who.asked.alternatives)
    ))
    .hint("ask for the same in every container with runmig.dev/scope: pod"))
}
