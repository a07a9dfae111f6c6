//! Makes the slice of a claim's promise, and ends what is in its way.

use super::place::{ClaimNews, ClaimPlace, End, Hear, Taken};
use crate::allocate::levels::LazyLevels;
use crate::allocate::provision::Maker;
use crate::allocate::record::{Part, Undo, roll_back};
use crate::allocate::requester::{Recipient, Tried};
use crate::counters::Outcome;
use crate::error::{Error, Result};
use crate::gpu::Session;
use crate::leases::Leases;
use crate::model::{Closed, MigMode, Placement};
use crate::reclaim::{self, Patience, Returned};
use crate::store::{Claim, Entry, Held, Holder, InstanceState, LeaseState, Operation};
use crate::{cordons, process};

/// The outcome of one try to make the slice of a promise.
pub(super) enum Made {
    Ready(Held),
    /// The record has changed, or the driver refused the place.
    Again,
    Obstacle(Taken),
}

impl Work<'_, '_> {
    /// Tries once to end an instance that is on its way out. Returns whether it is gone.
    pub(super) fn release(&self, entry: &Entry) -> Result<bool> {
        let (context, once) = (self.context, Patience::NONE);
        match entry {
            Entry::Held(held) if held.lease.state == LeaseState::Releasing => {
                reclaim::release(context, held, once).map(|()| true)
            }
            // Quarantined, or of a container of an ended claim.
            Entry::Held(held) if held.lease.claim().is_none() => {
                Ok(reclaim::release_dead(context, held)? == Returned::Yes)
            }
            Entry::Held(_) => Ok(false),
            // The apply of a layout ends or makes it.
            Entry::Unleased(instance) if context.is_at_work(instance) => Ok(false),
            Entry::Unleased(instance) => match reclaim::release_going(context, instance)? {
                Returned::Yes => Ok(true),
                Returned::No(why) => Err(Error::new(why)),
            },
        }
    }

    /// Makes the slice of a lease that is on record.
    pub(super) fn make(
        &mut self,
        driver: &Session<'_>,
        held: &Held,
        operation: &Operation,
    ) -> Result<Made> {
        let context = self.context;
        if held.lease.state == LeaseState::Releasing {
            return Ok(Made::Obstacle(Taken {
                by: format!("its earlier {} is being released", held.instance.resource),
                end: End::Due(Entry::Held(held.clone())),
            }));
        }
        if let Some(sick) = self.sickness(driver, held) {
            return Ok(Made::Obstacle(sick));
        }
        let Some(held) = self.begin(held, operation)? else {
            return Ok(Made::Obstacle(Taken {
                by: "another call makes it".to_owned(),
                end: End::Near,
            }));
        };
        let slice = held.instance.slice();
        let is_whole = || slice.map_or(Ok(false), |slice| reclaim::is_whole(driver, slice));
        let (part, end) = match &held.instance.state {
            InstanceState::Ready if is_whole()? => return self.finish(held, None),
            InstanceState::Idle { .. } => (Part::Existing(held), Outcome::Reused),
            InstanceState::Creating => (Part::Place(held), Outcome::Created),
            // An administrator, or a reset, removed the instance or its compute instance.
            _ => {
                roll_back(context, vec![Undo::Release(held)])?;
                return Ok(Made::Again);
            }
        };
        let maker = Maker {
            context,
            driver,
            levels: &LazyLevels::new(),
        };
        match maker.part(part, &mut self.tried) {
            Ok(held) => self.finish(held, Some(end)),
            Err(failed) => {
                let undone = failed.undo_by(|undo| match undo.as_slice() {
                    // The promise outlives an error of the driver.
                    [Undo::Release(held) | Undo::NotBegun(held)] => {
                        reclaim::undo_half_made(context, held)
                    }
                    _ => roll_back(context, undo),
                });
                undone.map(|()| Made::Again)
            }
        }
    }

    /// Returns the sickness of the GPU of a promise, whose slice is not made or is idle. A promise that is older than a
    /// cordon is kept.
    fn sickness(&self, driver: &Session<'_>, held: &Held) -> Option<Taken> {
        let state = &held.instance.state;
        let is_new = matches!(state, InstanceState::Creating | InstanceState::Idle { .. });
        let slice = held.instance.slice().filter(|_| is_new)?;
        let mig = MigMode::Enabled;
        let closed = Closed {
            signs: cordons::signs(self.context.config, driver, &slice.gpu_uuid, mig),
            ..Closed::default()
        };
        Some(Taken {
            by: format!("GPU {} is {}", slice.gpu_index, closed.sickness()?),
            end: End::Healed(closed.remedy(slice.gpu_index)),
        })
    }

    /// Puts this operation on record, which is the intent to make the instance. Returns none if another operation is at
    /// work on it.
    fn begin(&self, held: &Held, operation: &Operation) -> Result<Option<Held>> {
        let store = &self.context.store;
        let ledger = store.lock(&self.purpose())?;
        let now = store.get(&held.lease.id)?;
        // A release at work has the lease.
        let Some(now) = now.filter(|now| now.lease.state != LeaseState::Releasing) else {
            return Ok(None);
        };
        let others = now
            .lease
            .operation
            .as_ref()
            .filter(|id| *id != operation.id());
        if others.is_some_and(|id| store.is_at_work(id)) {
            return Ok(None);
        }
        let half_made =
            now.lease.operation.is_some() && now.instance.state == InstanceState::Creating;
        let (ledger, now) = match half_made {
            false => (ledger, now),
            true => {
                drop(ledger);
                reclaim::undo_half_made(self.context, &now)?;
                let ledger = store.lock(&self.purpose())?;
                let Some(now) = store
                    .get(&now.lease.id)?
                    .filter(|h| h.lease.operation.is_none())
                else {
                    return Ok(None);
                };
                (ledger, now)
            }
        };
        let lease = ledger.update_lease(&now.lease, |l| {
            l.operation = Some(operation.id().clone());
            l.creator = process::current();
            l.holder = Holder::Claim(self.claim.clone());
        })?;
        let instance = now.instance;
        Ok(lease.map(|lease| Held { lease, instance }))
    }

    /// Marks the lease *ready*. `made`: the end of the create if this work made or reused the slice. It counts with the
    /// change.
    fn finish(&mut self, held: Held, made: Option<Outcome>) -> Result<Made> {
        let observer = &self.context.observer;
        let ledger = self.context.store.lock(&self.purpose())?;
        let lease = ledger.change(|state| {
            let now = state.lease(&held.lease.id);
            if now.is_none_or(|now| now.state == LeaseState::Releasing) {
                return Ok(None);
            }
            if let Some(end) = made {
                state.counters.add(&observer.counts_of(end, None));
            }
            state.update_lease(&held.lease.id, |l| l.state = LeaseState::Ready)
        })?;
        let Some(lease) = lease else {
            return Ok(Made::Again);
        };
        if let Some(end) = made {
            observer.ends(end);
            self.is_made = true;
        }
        let instance = held.instance;
        Ok(Made::Ready(Held { lease, instance }))
    }
}

/// The work on one device of a claim.
pub(super) struct Work<'a, 'c> {
    pub context: &'a Leases<'c>,
    pub claim: Claim,
    pub at: &'a ClaimPlace,
    pub tried: Tried,
    /// Whether this work made or reused the slice.
    pub is_made: bool,
    /// The listener for what people should know.
    hear: Hear<'a>,
    /// The obstacle that was told last.
    told: Option<String>,
}

impl<'a, 'c> Work<'a, 'c> {
    pub(super) fn new(
        context: &'a Leases<'c>,
        claim: Claim,
        at: &'a ClaimPlace,
        hear: Hear<'a>,
    ) -> Self {
        Work {
            context,
            claim,
            at,
            tried: Tried::default(),
            is_made: false,
            hear,
            told: None,
        }
    }

    /// Tells that the promise moved to another place.
    pub(super) fn tell_move(&self, to: Placement, by: String) {
        (self.hear)(ClaimNews::Moved { to, by });
    }

    /// Tells an obstacle that the work waits for, each once.
    pub(super) fn tell_wait(&mut self, taken: &Taken) {
        if self.told.as_ref() == Some(&taken.by) {
            return;
        }
        let Taken { by, .. } = taken;
        tracing::info!("{} waits: {by}", self.claim);
        self.told = Some(by.clone());
        (self.hear)(ClaimNews::Waits { by: by.clone() });
    }

    pub(super) fn refusal(&self, taken: &Taken) -> Error {
        let hint = match &taken.end {
            End::Open => {
                "delete that holder, or the pod, so that the scheduler chooses another device"
            }
            End::Near | End::Due(_) => "wait until it has ended; the kubelet tries again",
            End::Healed(remedy) => remedy,
        };
        Error::new(format!(
            "cannot make {} at {} on GPU {} for {}: {}",
            self.at.profile, self.at.placement, self.at.gpu, self.claim, taken.by
        ))
        .hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::tests::{config, open};
    use std::cell::RefCell;

    #[test]
    fn tells_each_obstacle_once() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let at = ClaimPlace {
            gpu: "GPU-0".into(),
            profile: "1g.10gb".to_owned(),
            placement: Placement { start: 0, size: 1 },
        };
        let told = RefCell::new(Vec::new());
        let hear = |news| told.borrow_mut().push(news);
        let mut work = Work::new(&leases, Claim::default(), &at, &hear);
        for by in ["one", "one", "two"] {
            let (by, end) = (by.to_owned(), End::Near);
            work.tell_wait(&Taken { by, end });
        }
        let news = |by: &str| ClaimNews::Waits { by: by.to_owned() };
        assert_eq!(told.take(), [news("one"), news("two")]);
    }
}
