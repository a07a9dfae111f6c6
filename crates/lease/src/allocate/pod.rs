//! One slice for the containers of a pod that say so. Each has a lease of its own on the same instance,
//! and the instance ends with its last lease: each release looks, under the ledger's lock, whether another
//! lease is there, and strikes off its own in the same moment. A lease that is being released is not shared
//! any more, so no new one comes while the last one goes.

use super::requester::{Late, Recipient, Requester, Tried};
use crate::draft::slot_of;
use crate::error::{Error, Result, printable};
use crate::gpu::Queries;
use crate::idle::is_there;
use crate::inventory::Inventory;
use crate::leases::Leases;
use crate::model::Snapshot;
use crate::placement::{self, Constraints, Slot};
use crate::reclaim::{self, Patience};
use crate::store::{Container, Held, InstanceState, Lease, LeaseState, Portion, Resource};
use std::time::{Duration, Instant};

/// Another container of the pod.
pub(crate) enum Peer {
    /// It has the slice; this is the requester's lease on it.
    Has(Held),
    /// It creates the slice.
    Creates(Held),
}

/// Puts a lease of the requester's on record on the slice or GPU that another container of its pod has. None
/// where no container of the pod has one. `wanted`: the constraints of a request for a slice.
pub(super) fn share(
    context: &Leases<'_>,
    driver: &impl Queries,
    inventory: &Inventory,
    wanted: Option<&Constraints<'_>>,
    who: &Requester<'_>,
) -> Result<Option<Peer>> {
    let snapshot = &inventory.snapshot;
    let Some(pod) = &who.request.shared_in else {
        return Ok(None);
    };
    let is_peer = |h: &Held| {
        let lease = &h.lease;
        lease.shared_in.as_ref() == Some(pod) && lease.state != LeaseState::Releasing
    };
    for peer in inventory.leases.iter().filter(|h| is_peer(h)) {
        if peer.instance.state != InstanceState::Ready {
            return Ok(Some(Peer::Creates(peer.clone())));
        }
        // An administrator, or a reset, may have removed the instance. It may also be newer than the
        // snapshot.
        if !is_there(snapshot, &peer.instance) && !exists(driver, peer)? {
            continue;
        }
        check_same(snapshot, peer, wanted, who)?;
        check_health(snapshot, peer)?;
        let held = who.draft(peer.instance.clone(), Portion::All)?;
        let ledger = context.store.lock(&who.purpose())?;
        // Asked again: the peer may have gone meanwhile.
        if context
            .store
            .get(&peer.lease.id)?
            .is_some_and(|now| is_peer(&now))
        {
            ledger.put_lease(held.lease.clone())?;
            tracing::info!(
                lease = held.lease.id.as_str(),
                container = who.holder.key.id,
                "shares the slice of container {}",
                peer.lease.holder.name()
            );
            return Ok(Some(Peer::Has(held)));
        }
    }
    Ok(None)
}

/// Returns whether the pod's slice exists. If that cannot be found out, no other slice is created.
fn exists(driver: &impl Queries, peer: &Held) -> Result<bool> {
    let found = reclaim::exists(driver, &peer.instance);
    found.map_err(|e| does_not_answer(peer).caused_by(e))
}

/// Waits a moment for the slice that another container of the pod creates, or that has its seats in the making, or for the
/// end of that create.
///
/// # Errors
/// The slice of the pod takes too long.
pub(super) fn wait_for(
    context: &Leases<'_>,
    peer: &Held,
    who: &Container,
    tried: &mut Tried,
) -> Result<()> {
    // The peer has the GPU's lock while it creates the slice, or queues for it.
    let why = format!("create of {}", who.key.id);
    let gpu = peer.instance.resource.gpu_uuid();
    if let Err(e) = context.store.lock_gpu(gpu, &why) {
        return go_without(context, peer, tried, Some(e));
    }
    let is_made = || {
        let now = context.store.instance_now(&peer.instance).ok().flatten();
        now.is_some_and(|i| i.state == InstanceState::Ready)
    };
    let against = |now: &Lease| match is_made() {
        true => Some(String::new()),
        false => context.sign_of_life(now),
    };
    if let Err(e) = context.release_unless(peer, Patience::NONE, against) {
        tracing::warn!(lease = peer.lease.id.as_str(), "{}", e.line());
    }
    // The peer may not have come to the lock yet, or validates a slice that existed already.
    let since = match &mut tried.awaited {
        Some((id, since)) if *id == peer.lease.id => *since,
        other => other.insert((peer.lease.id.clone(), Instant::now())).1,
    };
    let waited = since.elapsed();
    if waited >= context.config.lock_timeout {
        return go_without(context, peer, tried, None);
    }
    let gap = waited / 8;
    crate::effect::pause(gap.clamp(Duration::from_millis(2), Duration::from_millis(200)));
    Ok(())
}

/// Goes on without a slice for which this create waited in vain. `locked`: why its GPU cannot be locked, if that is the
/// cause.
fn go_without(
    context: &Leases<'_>,
    peer: &Held,
    tried: &mut Tried,
    locked: Option<Error>,
) -> Result<()> {
    let (name, pid) = (peer.lease.holder.name(), peer.lease.creator.pid);
    let time = humantime::format_duration(context.config.lock_timeout);
    // A seat may have its place in another slice.
    if peer.lease.share().is_some() {
        let gpu = peer.instance.resource.gpu_uuid().clone();
        tried.late.push(Late {
            slice: peer.instance.id.clone(),
            why: format!("container {name} makes it (process {pid}), waited {time}"),
            locked: locked.map(|e| (gpu, e.reason())),
        });
        return Ok(());
    }
    Err(locked.unwrap_or_else(|| {
        let name = printable(name);
        Error::new(format!(
            "container {name} of the same pod makes the slice for all of them (process {pid}), waited {time}"
        ))
        .hint("let it end, or set a longer lock_timeout in the configuration")
    }))
}

fn does_not_answer(peer: &Held) -> Error {
    Error::new(format!(
        "container {} of the same pod is on GPU {}, which does not answer",
        printable(peer.lease.holder.name()),
        peer.instance.resource.gpu_uuid()
    ))
}

/// Checks that the GPU of a pod's slice is not sick. A cordon does not keep a pod from its own slice.
fn check_health(snapshot: &Snapshot, peer: &Held) -> Result<()> {
    if let Some(gpu) = snapshot.gpu(peer.instance.resource.gpu_uuid())
        && let Some(closed) = &gpu.closed
        && let Some(sickness) = closed.sickness()
    {
        let (peer, index) = (printable(peer.lease.holder.name()), gpu.index);
        let slice = format!("container {peer} of the same pod is on GPU {index}");
        return Err(Error::new(format!("{slice}, which is {sickness}")).hint(closed.remedy(index)));
    }
    Ok(())
}

/// Checks that containers that share one slice or GPU request the same.
fn check_same(
    snapshot: &Snapshot,
    peer: &Held,
    wanted: Option<&Constraints<'_>>,
    who: &Requester<'_>,
) -> Result<()> {
    let resource = &peer.instance.resource;
    let (gpu, mut unread) = (resource.gpu_uuid(), snapshot.unreadable.iter());
    if snapshot.gpu(gpu).is_none()
        && let Some((_, why)) = unread.find(|(index, _)| resource.gpu_index() == *index)
    {
        return Err(does_not_answer(peer).caused_by(Error::new(why.clone())));
    }
    let (is_same, has) = match (resource, wanted) {
        (Resource::Mig(slice), Some(wanted)) => {
            let mut there = only(snapshot, &[slot_of(slice)]);
            // What lives on a cordoned GPU goes on, and so does its pod.
            there.gpus.iter_mut().for_each(|gpu| gpu.closed = None);
            let fits = placement::choose(&there, &[], &unreserved(wanted)).is_ok();
            (fits, format!("a {}", slice.profile))
        }
        (Resource::Mig(slice), None) => (false, format!("a {}", slice.profile)),
        (Resource::Gpu(_), _) => (wanted.is_none(), resource.to_string()),
    };
    if is_same {
        return Ok(());
    }
    Err(Error::new(format!(
        "container {} of the same pod has {has} for all of them, and this one asks for {}",
        printable(peer.lease.holder.name()),
        who.request.wanted.written()
    ))
    .hint("ask for the same in every container with runmig.dev/scope: pod"))
}

/// Returns the same request for slices that exist already: no place has to stay free for others.
pub(super) fn unreserved<'a>(wanted: &Constraints<'a>) -> Constraints<'a> {
    Constraints {
        idle: &[],
        blockers: &[],
        ours: &[],
        ..*wanted
    }
}

/// Returns a machine on which these places are all the room there is.
pub(super) fn only(snapshot: &Snapshot, places: &[Slot]) -> Snapshot {
    let mut only = snapshot.clone();
    for gpu in &mut only.gpus {
        gpu.instances.clear();
        for profile in &mut gpu.profiles {
            let is_it =
                |p: &Slot, at| (&p.gpu, p.profile_id, p.placement) == (&gpu.uuid, profile.id, at);
            let placements = &mut profile.placements;
            placements.retain(|at| places.iter().any(|p| is_it(p, *at)));
        }
    }
    only
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Level;
    use crate::process;
    use crate::reclaim::tests::{config, of_killed, open, put};
    use crate::store::{Enforcement, Instance, Share};
    use std::sync::Arc;

    /// Puts a lease on record whose instance is in the making.
    fn peer(leases: &Leases<'_>, id: &str, change: impl FnOnce(&mut Lease)) -> Held {
        let mut held = of_killed(leases, id);
        Arc::make_mut(&mut held.instance).state = InstanceState::Creating;
        change(Arc::make_mut(&mut held.lease));
        leases.store.lock("test").unwrap().put_new(&held).unwrap();
        held
    }

    fn who() -> Container {
        let key = crate::store::Key::new("/run".into(), "who".to_owned());
        Container {
            key,
            ..Container::default()
        }
    }

    #[test]
    fn releases_a_dead_peer_unless_its_slice_is_made() {
        let (_dir, config) = config("");
        let leases = open(&config);
        for (is_made, stays) in [(false, false), (true, true)] {
            let peer = peer(&leases, "peer", |_| ());
            if is_made {
                let ready = |i: &mut Instance| i.state = InstanceState::Ready;
                leases.record(&peer, ready).unwrap();
            }
            wait_for(&leases, &peer, &who(), &mut Tried::default()).unwrap();
            let now = leases.store.get(&peer.lease.id).unwrap();
            assert_eq!(now.is_some(), stays);
        }
    }

    #[test]
    fn waits_for_each_peer_for_its_own_time() {
        let (_dir, config) = config("lock_timeout = \"1h\"");
        let leases = open(&config);
        let lives = |lease: &mut Lease| lease.creator = process::current();
        let [one, other] = ["one", "other"].map(|id| put(&leases, id, lives));
        let long_ago = Instant::now().checked_sub(config.lock_timeout).unwrap();
        let mut tried = Tried {
            awaited: Some((one.lease.id.clone(), long_ago)),
            ..Tried::default()
        };
        let late = wait_for(&leases, &one, &who(), &mut tried).unwrap_err();
        let why = "container one of the same pod makes the slice";
        assert!(late.line().starts_with(why), "{}", late.line());
        wait_for(&leases, &other, &who(), &mut tried).unwrap();
        let awaited = tried.awaited.clone();
        assert_eq!(awaited.as_ref().map(|(id, _)| id), Some(&other.lease.id));
        wait_for(&leases, &other, &who(), &mut tried).unwrap();
        assert_eq!(tried.awaited, awaited);
    }

    /// A seat may have its place in another slice.
    #[test]
    fn goes_on_without_a_late_seat() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let peer = peer(&leases, "seat", |lease| {
            lease.portion = Portion::Share(Share {
                memory_mib: 1,
                booked_mib: 1,
                enforcement: Enforcement::new(Level::None),
            });
        });
        let mut tried = Tried::default();
        go_without(&leases, &peer, &mut tried, None).unwrap();
        assert_eq!(tried.late[0].slice, peer.instance.id);
        let line = does_not_answer(&peer).line();
        assert!(
            line.starts_with("container seat of the same pod is on GPU"),
            "{line}"
        );
    }
}
