//! The leases of claims: their end, and the half-made slice of a killed Prepare.

use super::destroy;
use super::finding::Patience;
use super::liveness::{A_MOMENT, lasting};
use super::release::{Returned, release};
use crate::error::{self, Result};
use crate::leases::Leases;
use crate::store::{self, ClaimName, Held, InstanceState, Lease, LeaseState};
use std::time::Instant;

impl Leases<'_> {
    /// Releases all leases of a claim that Kubernetes has withdrawn. A claim may have none.
    ///
    /// # Errors
    /// An instance that is in use after this time. It is quarantined, and the next call tries again.
    pub fn unprepare(&self, uid: &str, patience: Patience) -> Result<()> {
        let listing = self.store.list()?;
        let is_its = |held: &&Held| held.lease.claim().is_some_and(|claim| claim.uid == uid);
        let mark = store::mark_of(uid);
        let is_attached = |held: &&Held| {
            let shared_in = held.lease.shared_in.as_ref();
            shared_in.is_some_and(|shared| shared.starts_with(&mark))
        };
        // CRI-O deletes a container late. A living one keeps its lease, and the slice with it.
        let ended = listing.held().filter(is_attached);
        let ended = ended.map(|held| release_dead(self, held).map(drop));
        let its = listing.held().filter(is_its);
        error::all(ended.chain(its.map(|held| release(self, held, patience))))
    }

    /// Releases the lease of one device of a claim, which Kubernetes has given to others. See `unprepare`.
    pub fn release_device(&self, device: &ClaimName, patience: Patience) -> Result<()> {
        let its = self.leases_that(|l| l.claim().is_some_and(|claim| device.is_of(claim)))?;
        error::all(its.iter().map(|held| release(self, held, patience)))
    }

    /// Names the container or the process that uses a device of a claim. If that cannot be found out, it says so.
    pub fn user_of_device(&self, device: &ClaimName) -> Result<Option<String>> {
        let listing = self.store.list()?;
        let mark = device.mark();
        for held in listing.held() {
            if held.lease.shared_in.as_ref() == Some(&mark)
                && let Some(life) = self.sign_of_life(&held.lease)
            {
                return Ok(Some(format!(
                    "{} lives ({life})",
                    held.lease.holder.title()
                )));
            }
            if held.lease.claim().is_some_and(|claim| device.is_of(claim)) {
                let holders = destroy::holders(self, held.instance.slice());
                if let Some((pid, name)) = holders.seen.first() {
                    return Ok(Some(format!("process {pid} {name} has it open")));
                }
                if let Some(why) = holders.unseen {
                    return Ok(Some(format!(
                        "whether a process has it open cannot be seen: {why}"
                    )));
                }
            }
        }
        Ok(None)
    }

    /// Removes the lease that an ended container had on the slice of its claim. The slice ends with the claim, or with
    /// the next collection if the claim is gone: a hook does not wait for the driver.
    pub fn detach(&self, claim: &ClaimName, container: &str) -> Result<()> {
        let begun = Instant::now();
        let ledger = self.store.lock(&format!("end of container {container}"))?;
        let listing = self.store.list()?;
        let mark = claim.mark();
        let is_its = |held: &&Held| {
            let lease = &held.lease;
            lease.shared_in.as_ref() == Some(&mark) && lease.holder.name() == container
        };
        self.end(&ledger, |state, ends| {
            for held in listing.held().filter(is_its) {
                state.remove_lease(&held.lease.id);
                ends.release(Some(&held.lease), &held.instance, begun);
                let goes =
                    !held.instance.outlives_leases() && !state.has_others(&held.instance.id, None);
                if goes {
                    state.update_instance(&held.instance.id, |i| {
                        i.state = InstanceState::Releasing
                    })?;
                }
            }
            Ok(())
        })
    }
}

/// Releases the lease of a container on a claim's slice, if the container is gone.
pub(crate) fn release_dead(context: &Leases<'_>, held: &Held) -> Result<Returned> {
    // A container that was just killed takes a moment to end.
    let lives = |now: &Lease| lasting(A_MOMENT, || context.sign_of_life(now));
    context.release_unless(held, Patience::NONE, lives)
}

/// Destroys what an ended operation made for a promise, and keeps the promise.
///
/// # Errors
/// The driver's. The record stays as it is.
pub(crate) fn undo_half_made(context: &Leases<'_>, held: &Held) -> Result<()> {
    let Some(slice) = held.instance.slice() else {
        return Ok(());
    };
    let why = format!("prepare of {}", held.lease.holder.title());
    let _gpu = context.store.lock_gpu(&slice.gpu_uuid, &why)?;
    let now = context.store.get(&held.lease.id)?;
    // Without an operation nothing was begun, and an instance at the place is foreign.
    let is_half_made = |now: &Held| {
        let is_begun = now.lease.operation.is_some() && now.lease.state == LeaseState::Pending;
        // Another Prepare may have undone it and begun anew.
        let is_same = now.lease.operation == held.lease.operation;
        is_begun && is_same && now.instance.state == InstanceState::Creating
    };
    let now = now.filter(is_half_made);
    let slice = now.as_ref().and_then(|now| now.instance.slice());
    let (Some(now), Some(slice)) = (&now, slice) else {
        return Ok(());
    };
    destroy::destroy(&context.driver(), slice, || {
        destroy::mark(context, &now.instance, |i| {
            i.change_slice(|s| s.emptied = true)
        })
    })??;
    context.store.lock("prepare")?.change(|state| {
        state.update_instance(&now.instance.id, |i| {
            i.change_slice(|s| {
                (s.gpu_instance, s.compute_instance, s.mig_uuid) = (None, None, None);
                s.emptied = false;
            })
        })?;
        state.update_lease(&now.lease.id, |l| l.operation = None)
    })?;
    Ok(())
}

/// Undoes the work of a killed Prepare, for a collection.
pub(super) fn undo_killed_prepare(context: &Leases<'_>, held: &Held) -> Result<()> {
    let is_over = |id| !context.store.is_at_work(id);
    let operation = held.lease.operation.as_ref();
    let is_killed = held.lease.state == LeaseState::Pending && operation.is_some_and(is_over);
    match held.lease.claim().is_some() && is_killed {
        true => undo_half_made(context, held),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::tests::{config, of_killed, open, put};
    use crate::store::tests::instance;
    use crate::store::{Claim, Holder, Instance};
    use std::sync::Arc;

    fn claim(device: &str) -> Holder {
        Holder::Claim(Claim {
            uid: "u".to_owned(),
            device: device.to_owned(),
            ..Claim::default()
        })
    }

    #[test]
    fn releases_one_device_of_a_claim() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let [one, other] =
            ["a", "b"].map(|device| put(&leases, device, |lease| lease.holder = claim(device)));
        let [uid, device] = ["u", "a"].map(str::to_owned);
        let name = ClaimName { uid, device };
        leases.release_device(&name, Patience::NONE).unwrap();
        assert_eq!(leases.claims().unwrap(), [other]);
        assert_eq!(leases.store.get(&one.lease.id).unwrap(), None);
    }

    /// Without a driver only what is not half-made succeeds.
    #[test]
    fn asks_driver_only_about_what_an_operation_has_begun() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let [ended, newer] = [(); 2].map(|()| leases.store.begin().unwrap().id().clone());
        let (pending, creating) = (LeaseState::Pending, InstanceState::Creating);
        for (seen, now, state, of_instance, is_half_made) in rows! {
            Some(&ended), Some(&ended), pending, creating.clone() => true;
            Some(&ended), Some(&newer), pending, creating.clone() => false;
            Some(&ended), None, pending, creating.clone() => false;
            None, None, pending, creating.clone() => false;
            Some(&ended), Some(&ended), LeaseState::Releasing, creating.clone() => false;
            Some(&ended), Some(&ended), pending, InstanceState::Ready => false;
        } {
            let mut held = of_killed(&leases, "x");
            let lease = Arc::make_mut(&mut held.lease);
            (lease.holder, lease.state, lease.operation) = (claim("a"), state, now.cloned());
            held.instance = Arc::new(Instance {
                id: lease.instance.clone(),
                state: of_instance.clone(),
                ..instance("one")
            });
            leases.store.lock("test").unwrap().put_new(&held).unwrap();
            let mut before = held.clone();
            Arc::make_mut(&mut before.lease).operation = seen.cloned();
            let undone = undo_half_made(&leases, &before);
            assert_eq!(undone.is_err(), is_half_made, "{state:?} {of_instance:?}");
            assert_eq!(leases.store.get(&held.lease.id).unwrap(), Some(held));
        }
    }
}
