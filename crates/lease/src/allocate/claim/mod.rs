//! The slice of a claim: first a promise, which is a record without hardware, then the instance.
//!
//! Kubernetes chose the device, and with it the place. A claim does not wait in the queue: its place was free for the
//! scheduler. A promise that lost its place to a local slice moves to another place of the profile on the same GPU.

mod make;
mod place;

use crate::counters::{LeaseKind, Outcome};
use crate::draft;
use crate::error::{Error, Result};
use crate::events::EventType;
use crate::gpu::{Queries, Session};
use crate::inventory::Inventory;
use crate::leases::Leases;
use crate::observer::Create;
use crate::reclaim;
use crate::store::{Claim, Held, Holder, Instance, InstanceState, Operation, Origin, Resource};
use make::Made;
use make::Work;
pub use place::ClaimNews;
pub use place::ClaimPlace;
use place::Hear;
use place::{End, Taken, Way, holder, way};
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
        let driver = &self.driver();
        let mut work = Work::new(self, claim, at, hear);
        loop {
            match work.look(driver)? {
                Found::OnRecord(held) => return work.name_pods(held),
                Found::Promised(held) => return Ok(held),
                Found::Evict(idle) => work.discard(idle)?,
                Found::Taken(taken) => return Err(work.refusal(&taken)),
            }
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
        let mut create = observer.begin(LeaseKind::Slice, Some(named), &at.profile);
        let mut work = Work::new(self, claim, at, hear);
        let made = slice_of(&mut work, patience, &mut create);
        observer.waits_no_more(&mut create);
        match &made {
            // A slice that was there counted once.
            Ok(held) if work.is_made => observer.created(&create, std::slice::from_ref(held), None),
            Ok(_) => {}
            Err(e) => observer.failed(&create, e),
        }
        made
    }
}

fn slice_of(work: &mut Work<'_, '_>, patience: Duration, create: &mut Create) -> Result<Held> {
    let context = work.context;
    let begun = Instant::now();
    let end = begun + patience;
    let mut gap = GAP.0;
    let operation = context.store.begin()?;
    loop {
        // Closed before a wait: a long session sees stale handles, and may itself hold the instance that has to go.
        let session = context.driver();
        let step = work.step(&session, &operation, create);
        let is_last = Instant::now() >= end;
        let obstacle = match step {
            Ok(Made::Ready(held)) => {
                session.keep_geometry();
                return Ok(*held);
            }
            Ok(Made::Again) => continue,
            Ok(Made::Obstacle(obstacle)) => {
                let released = match &obstacle.end {
                    End::Due(entry) => work.release(entry),
                    End::Near | End::Healed(_) => Ok(false),
                    End::Open => {
                        create.ends(Outcome::Full);
                        return Err(work.refusal(&obstacle));
                    }
                };
                match released {
                    Ok(true) => continue,
                    Ok(false) if is_last => {
                        create.ends(Outcome::TimedOut);
                        return Err(work.refusal(&obstacle));
                    }
                    Err(e) if is_last => {
                        create.ends(Outcome::TimedOut);
                        return Err(work.refusal(&obstacle).caused_by(e));
                    }
                    Ok(false) | Err(_) => Some(obstacle),
                }
            }
            Err(e) if is_last || !e.is_passing() => return Err(e),
            Err(_) => None,
        };
        drop(session);
        if let Some(obstacle) = obstacle.filter(|_| begun.elapsed() >= NEWS) {
            context.observer.waits(create);
            work.tell_wait(&obstacle);
        }
        let since = Instant::now();
        crate::effect::pause(gap);
        create.waited(since);
        gap = (gap * 2).min(GAP.1);
    }
}

/// The outcome of a look for the claim's place.
enum Found {
    /// A lease of the claim that was on record.
    OnRecord(Held),
    /// A new one.
    Promised(Held),
    Evict(Vec<Instance>),
    Taken(Taken),
}

impl Work<'_, '_> {
    /// Tries once to make the slice of the claim.
    fn step(
        &mut self,
        driver: &Session<'_>,
        operation: &Operation,
        create: &mut Create,
    ) -> Result<Made> {
        match self.look(driver)? {
            Found::OnRecord(held) | Found::Promised(held) => {
                self.make(driver, &held, operation, create)
            }
            Found::Evict(idle) => self.discard(idle).map(|()| Made::Again),
            Found::Taken(taken) => Ok(Made::Obstacle(taken)),
        }
    }

    /// Returns the lease of the claim, which this puts on record if it is new.
    fn look(&self, driver: &Session<'_>) -> Result<Found> {
        let context = self.context;
        if let Some(held) = on_record(context, &self.claim)? {
            return Ok(Found::OnRecord(held));
        }
        driver.prepare()?;
        let plan = context.store.lock_plan(&self.purpose())?;
        // Another call for the claim may have been faster.
        if let Some(held) = on_record(context, &self.claim)? {
            return Ok(Found::OnRecord(held));
        }
        let inventory = Inventory::locked(context, driver, Vec::new(), &plan)?;
        let (instance, is_new) = match way(&inventory, &self.claim, self.at, &self.refused)? {
            Way::Taken(taken) => return Ok(Found::Taken(taken)),
            Way::Evict(idle) => return Ok(Found::Evict(idle)),
            Way::Reuse(idle) => (*idle, false),
            Way::Create(slice) => (
                draft::instance(Resource::Mig(*slice), Origin::Ours, InstanceState::Creating)?,
                true,
            ),
        };
        let ledger = context.store.lock(&self.purpose())?;
        let claim = Holder::Claim(self.claim.clone());
        let lease = draft::lease(&instance, claim, self.at.profile.clone())?;
        let held = Held { lease, instance };
        match is_new {
            true => ledger.put_new(&held)?,
            false => {
                let (state, id) = (context.store.state()?, &held.instance.id);
                let is_idle = { state.instance(id) }.is_some_and(|now| now.idle_since().is_some());
                if !is_idle || state.has_others(id, None) {
                    return Ok(Found::Evict(Vec::new()));
                }
                ledger.put_lease(&held.lease)?;
            }
        }
        let (lease, claim) = (held.lease.id.as_str(), &self.claim);
        let at = held.instance.slice().map(|slice| slice.placement);
        match at.filter(|at| *at != self.at.placement) {
            None => tracing::info!(lease, "{held} is promised to {claim}"),
            Some(to) => {
                let by = holder(&inventory, self.at, &self.refused);
                let from = self.at.placement;
                tracing::info!(
                    lease,
                    "{held} is promised to {claim} instead of {from}: {by}"
                );
                self.tell_move(to, by);
            }
        }
        drop(ledger);
        context.observer.placed(&held, EventType::Promised);
        Ok(Found::Promised(held))
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

    /// Destroys idle slices in the way.
    fn discard(&mut self, idle: Vec<Instance>) -> Result<()> {
        for instance in idle {
            if self.discarded.iter().any(|known| known.id == instance.id) {
                let resource = &instance.resource;
                return Err(Error::new(format!(
                    "cannot make the slice of {}: idle {resource} cannot be destroyed",
                    self.claim
                ))
                .hint(format!(
                    "see migctl list, then migctl release {}",
                    instance.id
                )));
            }
            reclaim::discard_idle(self.context, &instance);
            self.discarded.push(instance);
        }
        Ok(())
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
