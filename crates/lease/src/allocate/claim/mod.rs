//! The slice of a claim: first a promise, which is a record without hardware, then the instance.
//!
//! Kubernetes chose the device, and with it the place. A claim does not wait in the queue: its place was free for the
//! scheduler. A promise that lost its place to a local slice moves to another place of the profile on the same GPU.

mod make;
mod place;

use super::found::Piece;
use super::record::{Part, record};
use super::requester::Recipient;
use crate::counters::{LeaseKind, Outcome};
use crate::draft;
use crate::error::Result;
use crate::events::EventType;
use crate::gpu::{Queries, Session};
use crate::inventory::Inventory;
use crate::leases::Leases;
use crate::store::{Claim, Held, Holder, Instance, Lease, Operation, Portion};
use make::{Made, Work};
pub use place::{ClaimNews, ClaimPlace};
use place::{End, Hear, Taken};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time between two looks at an obstacle that is on its way out. It doubles, up to the second.
const GAP: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// The wait after which people hear of it. Most releases are shorter.
const NEWS: Duration = Duration::from_secs(1);

impl Leases<'_> {
    /// Puts the place of a claim's device on record, without hardware. A claim that is on record keeps its place, and
    /// learns its pods. `hear` is told of a move.
    ///
    /// # Errors
    /// The place and all others of its profile on the GPU are taken, or the GPU does not offer it.
    pub fn promise(&self, claim: Claim, at: &ClaimPlace, hear: Hear<'_>) -> Result<Held> {
        let mut work = Work::new(self, claim, at, hear);
        match work.look(&mut self.driver())? {
            Ok(held) => work.name_pods(held),
            Err(taken) => Err(work.refusal(&taken)),
        }
    }

    /// Makes the slice of a claim's device, and waits for this time for obstacles on their way out: the end of a
    /// holder, a lock, an instance in use. A slice that is there is returned as it is. `hear` is told of a move, and of
    /// a wait for a holder that lasts.
    ///
    /// # Errors
    /// As `promise`, and the driver's. The promise stays, unless the driver refused every place.
    pub fn prepare(
        &self,
        claim: Claim,
        at: &ClaimPlace,
        patience: Duration,
        hear: Hear<'_>,
    ) -> Result<Held> {
        let named = Holder::Claim(claim.clone());
        let observer = &self.observer;
        observer.begin(LeaseKind::Slice, Some(named), &at.profile);
        let mut work = Work::new(self, claim, at, hear);
        let made = slice_of(&mut work, patience);
        observer.waits_no_more();
        match &made {
            // A slice that was there counted once.
            Ok(held) if work.is_made => observer.created(std::slice::from_ref(held), None),
            Ok(_) => {}
            Err(e) => observer.failed(e),
        }
        made
    }
}

fn slice_of(work: &mut Work<'_, '_>, patience: Duration) -> Result<Held> {
    let context = work.context;
    let observer = &context.observer;
    let begun = Instant::now();
    let end = begun + patience;
    let mut gap = GAP.0;
    let operation = context.store.begin()?;
    loop {
        // Closed before a wait: a long session sees stale handles, and may itself hold the instance that has to go.
        let mut session = context.driver();
        let step = work.step(&mut session, &operation);
        let is_last = Instant::now() >= end;
        let obstacle = match step {
            Ok(Made::Ready(held)) => {
                session.keep_geometry();
                return Ok(held);
            }
            Ok(Made::Again) => continue,
            Ok(Made::Obstacle(obstacle)) => {
                let released = match &obstacle.end {
                    End::Due(entry) => work.release(entry),
                    End::Near | End::Healed(_) => Ok(false),
                    End::Open => {
                        observer.ends(Outcome::Full);
                        return Err(work.refusal(&obstacle));
                    }
                };
                match released {
                    Ok(true) => continue,
                    not_yet if is_last => {
                        observer.ends(Outcome::TimedOut);
                        let refusal = work.refusal(&obstacle);
                        return Err(match not_yet {
                            Ok(_) => refusal,
                            Err(e) => refusal.caused_by(e),
                        });
                    }
                    Ok(false) | Err(_) => Some(obstacle),
                }
            }
            Err(e) if is_last || !e.is_passing() => return Err(e),
            Err(_) => None,
        };
        drop(session);
        if let Some(obstacle) = obstacle.filter(|_| begun.elapsed() >= NEWS) {
            observer.waits();
            work.tell_wait(&obstacle);
        }
        // What could not be destroyed may go now.
        work.tried.idle.clear();
        let since = Instant::now();
        crate::effect::pause(gap);
        observer.waited(since);
        gap = (gap * 2).min(GAP.1);
    }
}

impl Recipient for Work<'_, '_> {
    fn purpose(&self) -> String {
        format!("prepare of {}", self.claim)
    }

    fn draft(&self, instance: Arc<Instance>, portion: Portion) -> Result<Held> {
        let holder = Holder::Claim(self.claim.clone());
        let lease = Arc::new(Lease {
            portion,
            ..draft::lease(&instance, holder, self.at.profile.clone())?
        });
        Ok(Held { lease, instance })
    }
}

impl Work<'_, '_> {
    /// Tries once to make the slice of the claim.
    fn step(&mut self, driver: &mut Session<'_>, operation: &Operation) -> Result<Made> {
        match self.look(driver)? {
            Ok(held) => self.make(driver, &held, operation),
            Err(taken) => Ok(Made::Obstacle(taken)),
        }
    }

    /// Returns the lease of the claim, which this puts on record if it is new; else what has taken its place.
    fn look(&mut self, driver: &mut Session<'_>) -> Result<std::result::Result<Held, Taken>> {
        let context = self.context;
        loop {
            if let Some(held) = on_record(context, &self.claim)? {
                return Ok(Ok(held));
            }
            driver.prepare()?;
            let lock = context.store.lock_plan(&self.purpose())?;
            // Another call for the claim may have been faster.
            if let Some(held) = on_record(context, &self.claim)? {
                return Ok(Ok(held));
            }
            let inventory = Inventory::locked(context, &*driver, Vec::new(), &lock)?;
            let mut plan = match place::plan(&inventory, &self.claim, self.at, &self.tried)? {
                Err(taken) => return Ok(Err(taken)),
                Ok(plan) => plan,
            };
            let Some(step) = plan.steps.pop().filter(|_| plan.evict.is_empty()) else {
                drop(lock);
                // An idle slice that somebody still uses is waited for.
                driver.close();
                self.tried.evict(context, plan.evict);
                continue;
            };
            // None: the idle slice that it was to get has gone.
            if let Some(part) = record(context, self, Piece::Slice(step))? {
                let (Part::Place(held) | Part::Existing(held) | Part::Joined(held)) = part;
                self.tell_promise(&held, &inventory);
                return Ok(Ok(held));
            }
        }
    }

    fn tell_promise(&self, held: &Held, inventory: &Inventory) {
        let (lease, claim) = (held.lease.id.as_str(), &self.claim);
        let at = held.instance.slice().map(|slice| slice.placement);
        match at.filter(|at| *at != self.at.placement) {
            None => tracing::info!(lease, "{held} is promised to {claim}"),
            Some(to) => {
                let by = place::holder(inventory, self.at, &self.tried.refused);
                let from = self.at.placement;
                tracing::info!(
                    lease,
                    "{held} is promised to {claim} instead of {from}: {by}"
                );
                self.tell_move(to, by);
            }
        }
        self.context.observer.placed(held, EventType::Promised);
    }

    /// Puts the pods of the claim on record, if they have changed: the kubelet prepares a claim once for all of them.
    fn name_pods(&self, held: Held) -> Result<Held> {
        let claim = held.lease.claim();
        if claim.is_none_or(|c| c.pods == self.claim.pods) {
            return Ok(held);
        }
        let ledger = self.context.store.lock(&self.purpose())?;
        let named = ledger.update_lease(&held.lease, |l| {
            l.holder = Holder::Claim(self.claim.clone());
        })?;
        let lease = named.unwrap_or(held.lease);
        Ok(Held {
            lease,
            instance: held.instance,
        })
    }
}

/// Returns the lease of a claim's device, if it is on record.
///
/// # Errors
/// The ledger cannot be read.
fn on_record(context: &Leases<'_>, claim: &Claim) -> Result<Option<Held>> {
    let listing = context.store.list()?;
    let is_its = |held: &Held| held.lease.claim().is_some_and(|c| c.is(claim));
    Ok(listing.held().find(|held| is_its(held)).cloned())
}
