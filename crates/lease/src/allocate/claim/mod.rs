//! The slice of a claim: first a promise, which is a record without hardware, then the instance.
//!
//! Kubernetes chose the device, and with it the place. A claim does not wait in the queue: its place was free for the
//! scheduler. A promise that lost its place to a local slice moves to another place of the profile on the same GPU.

mod place;

use super::provision::{Trouble, create_slice};
use super::record::{Undo, roll_back};
use super::validate::validate;
use crate::context::{LeaseContext, now};
use crate::draft;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::gpu::nvml::Session;
use crate::inventory::Inventory;
use crate::model::LeaseId;
use crate::placement::Slot;
use crate::process;
use crate::reclaim::{self, Patience, Returned};
use crate::store::{
    self, Claim, Entry, Held, Holder, Instance, InstanceState, Lease, LeaseState, Operation,
    Origin, Portion, Resource,
};
pub use place::ClaimPlace;
use place::{End, Taken, Way, way};
use std::time::{Duration, Instant};

/// The time between two looks at an obstacle that is on its way out.
const GAP: Duration = Duration::from_millis(50);

/// How often the driver may refuse a place that looked free.
const MAX_REFUSALS: usize = 8;

/// Puts the place of a claim's device on record, without hardware. A claim that is on record stays as it is.
///
/// # Errors
/// The place and all others of its profile on the GPU are taken, or the GPU does not offer it.
pub(crate) fn promise(context: &LeaseContext<'_>, claim: Claim, at: &ClaimPlace) -> Result<Held> {
    let driver = &context.driver();
    let mut work = Work::new(context, driver, claim, at);
    loop {
        match work.look()? {
            Found::OnRecord(held) | Found::Promised(held) => return Ok(held),
            Found::Evict(idle) => work.discard(idle)?,
            Found::Taken(taken) => return Err(work.refusal(&taken)),
        }
    }
}

/// Makes the slice of a claim's device, and waits for this time for obstacles on their way out. A slice that is there
/// is returned as it is.
///
/// # Errors
/// As `promise`, and the driver's. The promise stays.
pub(crate) fn prepare(
    context: &LeaseContext<'_>,
    claim: Claim,
    at: &ClaimPlace,
    patience: Duration,
) -> Result<Held> {
    let (driver, end) = (&context.driver(), Instant::now() + patience);
    let operation = context.store.begin()?;
    let mut work = Work::new(context, driver, claim, at);
    loop {
        let obstacle = match work.look()? {
            Found::OnRecord(held) | Found::Promised(held) => match work.make(&held, &operation)? {
                Made::Ready(held) => {
                    driver.keep_geometry();
                    return Ok(*held);
                }
                Made::Again => continue,
                Made::Obstacle(taken) => taken,
            },
            Found::Evict(idle) => {
                work.discard(idle)?;
                continue;
            }
            Found::Taken(taken) => taken,
        };
        let is_last = Instant::now() >= end;
        let released = match &obstacle.end {
            End::Due(entry) => work.release(entry),
            End::Near => Ok(false),
            End::Open => return Err(work.refusal(&obstacle)),
        };
        match released {
            Ok(true) => continue,
            Ok(false) if is_last => return Err(work.refusal(&obstacle)),
            Err(e) if is_last => return Err(work.refusal(&obstacle).caused_by(e)),
            Ok(false) | Err(_) => std::thread::sleep(GAP),
        }
    }
}

/// The work on one device of a claim.
struct Work<'a, 'c> {
    context: &'a LeaseContext<'c>,
    driver: &'a Session,
    claim: Claim,
    at: &'a ClaimPlace,
    /// Places that the driver refused.
    refused: Vec<Slot>,
    /// Idle slices that were to go, by instance.
    discarded: Vec<Instance>,
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

/// The outcome of one try to make the slice of a promise.
enum Made {
    Ready(Box<Held>),
    /// The record has changed, or the driver refused the place.
    Again,
    Obstacle(Taken),
}

impl<'a, 'c> Work<'a, 'c> {
    fn new(
        context: &'a LeaseContext<'c>,
        driver: &'a Session,
        claim: Claim,
        at: &'a ClaimPlace,
    ) -> Self {
        Work {
            context,
            driver,
            claim,
            at,
            refused: Vec::new(),
            discarded: Vec::new(),
        }
    }

    fn purpose(&self) -> String {
        format!("prepare of {}", self.claim)
    }

    fn refusal(&self, taken: &Taken) -> Error {
        let hint = match taken.end {
            End::Open => {
                "delete that holder, or the pod, so that the scheduler chooses another device"
            }
            End::Near | End::Due(_) => "wait until it has ended; the kubelet tries again",
        };
        Error::new(format!(
            "cannot make {} at {} on GPU {} for {}: {}",
            self.at.profile, self.at.placement, self.at.gpu, self.claim, taken.by
        ))
        .hint(hint)
    }

    /// Returns the lease of the claim, which this puts on record if it is new.
    fn look(&self) -> Result<Found> {
        let context = self.context;
        if let Some(held) = on_record(context, &self.claim)? {
            return Ok(Found::OnRecord(held));
        }
        self.driver.prepare()?;
        let plan = context.store.lock_plan(&self.purpose())?;
        // Another call for the claim may have been faster.
        if let Some(held) = on_record(context, &self.claim)? {
            return Ok(Found::OnRecord(held));
        }
        let inventory = Inventory::locked(context, self.driver, Vec::new(), &plan)?;
        let (instance, is_new) = match way(&inventory, &self.claim, self.at, &self.refused)? {
            Way::Taken(taken) => return Ok(Found::Taken(taken)),
            Way::Evict(idle) => return Ok(Found::Evict(idle)),
            Way::Reuse(idle) => (*idle, false),
            Way::Create(slice) => {
                let state = (Origin::Ours, InstanceState::Creating);
                (
                    draft::instance(context, Resource::Mig(*slice), state)?,
                    true,
                )
            }
        };
        let ledger = context.store.lock(&self.purpose())?;
        ledger.sweep();
        let held = Held {
            lease: self.draft(&instance)?,
            instance,
        };
        match is_new {
            true => ledger.put_new(&held)?,
            false => {
                let now = context.store.instance_now(&held.instance)?;
                let is_idle = now.is_some_and(|now| now.idle_since().is_some());
                if !is_idle || !context.store.leases_on(&held.instance.id)?.is_empty() {
                    return Ok(Found::Evict(Vec::new()));
                }
                ledger.put_lease(&held.lease)?;
            }
        }
        let (lease, claim) = (held.lease.id.as_str(), &self.claim);
        tracing::info!(lease, "{held} is promised to {claim}");
        Ok(Found::Promised(held))
    }

    fn draft(&self, instance: &Instance) -> Result<Lease> {
        Ok(Lease {
            id: LeaseId::new(store::random_id()?),
            instance: instance.id.clone(),
            portion: Portion::All,
            state: LeaseState::Pending,
            boot_id: self.context.boot_id.clone(),
            created: now(),
            request: self.at.profile.clone(),
            holder: Holder::Claim(self.claim.clone()),
            operation: None,
            creator: process::current(),
            runtime_process: None,
            init: None,
            namespaces: None,
            cgroups: Vec::new(),
            shared_in: None,
            limit: None,
            unknown: serde_json::Map::new(),
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

    /// Tries once to end an instance that is on its way out. Returns whether it is gone.
    fn release(&self, entry: &Entry) -> Result<bool> {
        let (context, once) = (self.context, Patience::NONE);
        match entry {
            Entry::Held(held) => reclaim::release(context, held, once).map(|()| true),
            Entry::Unleased(instance) => {
                let released = reclaim::release_instance_unless(context, instance, once, |_| None)?;
                Ok(released == Returned::Yes)
            }
        }
    }

    /// Makes the slice of a lease that is on record.
    fn make(&mut self, held: &Held, operation: &Operation) -> Result<Made> {
        let context = self.context;
        if held.lease.state == LeaseState::Releasing {
            return Ok(Made::Obstacle(Taken {
                by: format!("its earlier {} is being released", held.instance.resource),
                end: End::Due(Box::new(Entry::Held(held.clone()))),
            }));
        }
        let Some(held) = self.begin(held, operation)? else {
            return Ok(Made::Obstacle(Taken {
                by: "another call makes it".to_owned(),
                end: End::Near,
            }));
        };
        match &held.instance.state {
            InstanceState::Ready if reclaim::exists(context, self.driver, &held.instance)? => {
                self.finish(held)
            }
            InstanceState::Idle { .. } => match validate(context, self.driver, &held) {
                Some(held) => self.finish(held),
                None => self.give_up(Undo::GiveUp(held, Patience::default())),
            },
            InstanceState::Creating => self.create(held),
            // An administrator, or a reset, removed the instance.
            _ => self.give_up(Undo::Release(held)),
        }
    }

    fn give_up(&self, undo: Undo) -> Result<Made> {
        roll_back(self.context, vec![undo])?;
        Ok(Made::Again)
    }

    /// Puts this operation on record, which is the intent to make the instance. Returns none if another operation is at
    /// work on it.
    fn begin(&self, held: &Held, operation: &Operation) -> Result<Option<Held>> {
        let store = &self.context.store;
        let ledger = store.lock(&self.purpose())?;
        let Some(now) = store.held_now(held)? else {
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
                    .held_now(&now)?
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

    fn create(&mut self, held: Held) -> Result<Made> {
        let Resource::Mig(slice) = &held.instance.resource else {
            return Err(Error::new(format!(
                "the lease of {} is on no slice",
                self.claim
            )));
        };
        match create_slice(self.context, self.driver, (&held, slice)) {
            Ok(held) => self.finish(held),
            Err(Trouble::Refused(e)) => {
                let slot = draft::slot_of(slice);
                self.give_up(Undo::Forget(held))?;
                if self.refused.len() >= MAX_REFUSALS {
                    return Err(e);
                }
                self.refused.push(slot);
                Ok(Made::Again)
            }
            Err(Trouble::Other(e)) => {
                let undone = reclaim::undo_half_made(self.context, &held);
                Err(e.and(undone.err()))
            }
        }
    }

    fn finish(&self, held: Held) -> Result<Made> {
        let ledger = self.context.store.lock(&self.purpose())?;
        let lease = ledger.update_lease(&held.lease, |l| l.state = LeaseState::Ready)?;
        let instance = held.instance;
        Ok(match lease {
            Some(lease) => Made::Ready(Box::new(Held { lease, instance })),
            None => Made::Again,
        })
    }
}

/// Returns the lease of a claim's device in this boot, if it is on record.
///
/// # Errors
/// A record that may be the claim's cannot be read.
fn on_record(context: &LeaseContext<'_>, claim: &Claim) -> Result<Option<Held>> {
    let listing = context.store.list()?;
    let is_its = |held: &Held| {
        let its = held.lease.claim().is_some_and(|c| c.is(claim));
        its && held.lease.boot_id == context.boot_id
    };
    if let Some(held) = listing.held().find(|held| is_its(held)) {
        return Ok(Some(held.clone()));
    }
    match listing.damaged.iter().find(|d| d.is_of_claim(claim)) {
        Some(damaged) if damaged.unfinished().is_none() => Err(Error::new(format!(
            "cannot read the lease of {claim}: {}",
            damaged.why.line()
        ))
        .hint(format!(
            "once its pod is gone, migctl release {}",
            damaged.id().unwrap_or_default()
        ))),
        _ => Ok(None),
    }
}
