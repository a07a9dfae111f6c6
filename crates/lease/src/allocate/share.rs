//! One slice for the containers of a pod that say so. Each has a lease of its own on the same instance,
//! and the instance ends with its last lease: each release looks, under the ledger's lock, whether another
//! lease is there, and strikes off its own in the same moment. A lease that is being released is not shared
//! any more, so no new one comes while the last one goes.

use super::footprint::{only, unreserved};
use super::requester::Requester;
use crate::context::LeaseContext;
use crate::draft::slot_of;
use crate::error::{Error, Result, printable};
use crate::gpu::Queries;
use crate::idle::is_there;
use crate::inventory::Inventory;
use crate::model::{ListedInstance, Snapshot};
use crate::placement::{self, Constraints};
use crate::reclaim::{self, Patience, liveness};
use crate::request;
use crate::store::{Holder, Lease, State};
use std::time::{Duration, Instant};

/// Another container of the pod.
pub(crate) enum Peer {
    /// It has the slice; this is the requester's lease on it.
    Has(Box<Lease>),
    /// It creates the slice.
    Creates(Box<Lease>),
}

/// Puts a lease of the requester's on record on the slice that another container of its pod has. None
/// where no container of the pod has one.
pub(super) fn share(
    context: &LeaseContext<'_>,
    driver: &impl Queries,
    inventory: &Inventory,
    wanted: &Constraints<'_>,
    who: &Requester<'_>,
) -> Result<Option<Peer>> {
    let snapshot = &inventory.snapshot;
    let Some(pod) = &who.request.shared_in else {
        return Ok(None);
    };
    let is_peer = |l: &Lease| {
        l.shared_in.as_ref() == Some(pod)
            && l.boot_id == context.boot_id
            && l.state != State::Releasing
    };
    for peer in inventory.leases.iter().filter(|l| is_peer(l)) {
        if peer.slice.mig_uuid.is_none() {
            return Ok(Some(Peer::Creates(Box::new(peer.clone()))));
        }
        // An administrator, or a reset, may have removed the instance. It may also be newer than the
        // snapshot.
        if !is_there(snapshot, &peer.slice) && locate(driver, peer)?.is_none() {
            continue;
        }
        check_same(snapshot, peer, wanted, who)?;
        let mut lease = who.draft(context, peer.slice.clone())?;
        lease.adopted = peer.adopted;
        let ledger = context.store.lock(&who.purpose())?;
        // Asked again: the peer may have gone meanwhile.
        if context
            .store
            .get(&peer.id)?
            .is_some_and(|now| is_peer(&now))
        {
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

/// Returns the instance of the pod's slice. If that cannot be found out, no other slice is created.
fn locate(driver: &impl Queries, peer: &Lease) -> Result<Option<ListedInstance>> {
    let found = reclaim::locate(driver, &peer.slice);
    found.map_err(|e| does_not_answer(peer).caused_by(e))
}

/// Waits a moment for the slice that another container of the pod creates, or for the end of that
/// create; an error where that takes too long. `since`: the peer, and when this create began to wait.
pub(crate) fn wait_for(
    context: &LeaseContext<'_>,
    peer: &Lease,
    who: &Holder,
    since: &mut Option<(String, Instant)>,
) -> Result<()> {
    // The peer has the GPU's lock while it creates the slice, or queues for it.
    let why = format!("create of {}", who.key.id);
    drop(context.store.lock_gpu(&peer.slice.gpu_uuid, &why)?);
    let made = |now: &Lease| now.slice.mig_uuid.is_some().then(String::new);
    let against = |now: &Lease| made(now).or_else(|| liveness::sign_of_life(now));
    if let Err(e) = reclaim::release_unless(context, &peer.id, Patience::NONE, against) {
        tracing::warn!(lease = peer.id, "{}", e.line());
    }
    // The peer may not have come to the lock yet, or validates a slice that existed already.
    let since = match since {
        Some((id, since)) if *id == peer.id => *since,
        _ => since.insert((peer.id.clone(), Instant::now())).1,
    };
    let waited = since.elapsed();
    if waited < context.config.lock_timeout {
        let gap = waited / 8;
        std::thread::sleep(gap.clamp(Duration::from_millis(2), Duration::from_millis(200)));
        return Ok(());
    }
    Err(Error::new(format!(
        "container {} of the same pod makes the slice for all of them (process {}), waited {}",
        printable(&peer.holder.key.id),
        peer.creator.pid,
        humantime::format_duration(context.config.lock_timeout)
    ))
    .hint("let it end, or set a longer lock_timeout in the configuration"))
}

fn does_not_answer(peer: &Lease) -> Error {
    Error::new(format!(
        "container {} of the same pod has its slice on GPU {}, which does not answer",
        printable(&peer.holder.key.id),
        peer.slice.gpu_uuid
    ))
}

/// Checks that containers that share one slice request the same.
fn check_same(
    snapshot: &Snapshot,
    peer: &Lease,
    wanted: &Constraints<'_>,
    who: &Requester<'_>,
) -> Result<()> {
    let (gpu, mut unread) = (&peer.slice.gpu_uuid, snapshot.unreadable.iter());
    if !snapshot.gpus.iter().any(|g| g.uuid == *gpu)
        && let Some((_, why)) = unread.find(|(index, _)| *index == peer.slice.gpu_index)
    {
        return Err(does_not_answer(peer).caused_by(Error::new(why.clone())));
    }
    let there = only(snapshot, &[slot_of(&peer.slice)]);
    if placement::choose(&there, &[], &unreserved(wanted)).is_ok() {
        return Ok(());
    }
    Err(Error::new(format!(
        "container {} of the same pod has a {} for all of them, and this one asks for {}",
        printable(&peer.holder.key.id),
        peer.slice.profile,
        request::written(&who.request.alternatives)
    ))
    .hint("ask for the same in every container with runmig.dev/scope: pod"))
}
