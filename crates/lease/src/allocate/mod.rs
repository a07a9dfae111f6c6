//! From a request to slices that exist: admit, plan, reserve, provision; wait and try again.

mod admit;
mod attach;
mod claim;
mod claimed;
mod denial;
mod found;
mod gpus;
mod levels;
mod limit;
mod look;
mod occupied;
mod plan;
mod pod;
mod provision;
mod record;
mod requester;
mod reserve;
mod seats;
mod usable_plan;
pub mod what_if;

use super::leases::Leases;
use super::observer::{self, Create};
use super::queue::{Turn, Wake};
use super::reclaim::{self, liveness};
use crate::counters::{LeaseKind, Outcome as End};
use crate::error::{Error, Result};
use crate::events::EventType;
use crate::model::Cgroup;
use crate::placement::NoRoom;
use crate::refusal;
use crate::request::Request;
use crate::store::{ClaimName, Container, Held, Holder, Operation};
pub use claim::{ClaimNews, ClaimPlace};
pub use claimed::POD_PATIENCE;
pub use limit::LimitState;
use std::time::{Duration, Instant};

use denial::Denial;
use levels::LazyLevels;
pub use levels::levels;
use provision::{Failed, Maker};
use requester::{Requester, Tried};
use reserve::Outcome;

/// The slices of a create.
#[derive(Debug)]
pub struct Acquired {
    /// The leases, which are *pending*: the container is not made yet.
    pub leases: Vec<Held>,
    /// The operation of the create. No other process collects the leases before it is dropped.
    pub operation: Operation,
    /// The create, which a `count_` function of [`Leases`] ends.
    pub create: Create,
}

impl Leases<'_> {
    /// Returns leases on slices that exist.
    pub fn acquire(
        &self,
        holder: Container,
        request: &Request,
        cgroup: Cgroup,
    ) -> Result<Acquired> {
        let kind = observer::kind_of_wanted(&request.wanted);
        let named = Holder::Container(holder.clone());
        let written = request.wanted.written();
        let mut create = self.observer.begin(kind, Some(named), &written);
        let leases = leases_for(self, holder, request, cgroup, &mut create);
        self.observer.waits_no_more(&mut create);
        told(self, create, leases)
    }
}

/// Tells the end of a create's work on its leases.
fn told(
    context: &Leases<'_>,
    create: Create,
    leases: Result<(Vec<Held>, Operation)>,
) -> Result<Acquired> {
    let (leases, operation) = leases.inspect_err(|e| context.observer.failed(&create, e))?;
    Ok(Acquired {
        leases,
        operation,
        create,
    })
}

fn leases_for(
    context: &Leases<'_>,
    holder: Container,
    request: &Request,
    cgroup: Cgroup,
    create: &mut Create,
) -> Result<(Vec<Held>, Operation)> {
    // No record may name namespaces that no later process can see, since its slice would never come back.
    liveness::namespaces()?;
    occupied::release_previous(context, &holder)?;
    if let Some(path) = &cgroup.path {
        occupied::by_process(&holder, path)?;
    }
    let operation = context.store.begin()?;
    let requester = Requester {
        holder: &holder,
        request,
        cgroup: &cgroup,
        operation: &operation,
        levels: LazyLevels::new(),
    };
    let (store, config) = (&context.store, context.config);
    let mut turn = Turn::new(store, operation.id(), config, request, &holder);
    loop {
        let (denial, woke_others) = match attempts(context, &requester, &mut turn, create)? {
            Ended::Ready(leases, end) => {
                create.ends(end);
                return Ok((leases, operation));
            }
            Ended::Denied {
                denial,
                woke_others,
            } => (denial, woke_others),
        };
        let no = match denial {
            Denial::Limit(over) => {
                create.ends(End::Limited);
                return Err(over);
            }
            Denial::Room(no) => no,
        };
        if !no.may_pass() {
            create.ends(End::Unsatisfiable);
            return Err(refusal::error(&no, &[], None));
        }
        let since = Instant::now();
        if turn.waits() {
            context.observer.waits(create);
        }
        turn.pause(woke_others);
        let goes_on = wait(context, &mut turn)?;
        create.waited(since);
        if !goes_on {
            let no = what_if::explained(context, &requester, &mut turn, no);
            create.ends(match turn.waits() {
                true => End::TimedOut,
                false => denial::end(&no),
            });
            let error = turn.give_up(&no);
            return Err(error.and(reclaim::unseen(context)));
        }
    }
}

impl Leases<'_> {
    /// Returns leases for a container on the slices of claims; see `attach::attach_new`.
    pub fn acquire_claimed(
        &self,
        holder: &Container,
        claims: &[ClaimName],
        cgroup: &Cgroup,
        patience: Duration,
    ) -> Result<Acquired> {
        let named = Holder::Container(holder.clone());
        let mut create = self.observer.begin(LeaseKind::Slice, Some(named), "");
        // As for `acquire`.
        let attached = liveness::namespaces()
            .and_then(|_| attach::attach_new(self, claims, holder, cgroup, patience));
        if let Ok((leases, _)) = &attached {
            create.ends(End::Shared);
            for held in leases {
                self.observer.placed(held, EventType::Shared);
            }
        }
        told(self, create, attached)
    }

    /// Counts a create that ends with a container. `runtime`: the time of its low-level runtime.
    pub fn count_created(&self, create: &Create, runtime: Option<Duration>) {
        self.observer.count_created(create, runtime);
    }

    /// Records a create that ended with a container on these leases.
    pub fn created(&self, create: &Create, leases: &[Held], runtime: Option<Duration>) {
        let now = |held: &Held| {
            // Without a record, the container has ended already, or the read failed.
            let now = self.store.get(&held.lease.id).ok().flatten();
            now.unwrap_or_else(|| held.clone())
        };
        let leases: Vec<Held> = leases.iter().map(now).collect();
        self.observer.created(create, &leases, runtime);
    }

    /// Counts and records a create that failed after `acquire`. `error`: none where the low-level runtime told it.
    pub fn count_failed(&self, create: &Create, outcome: End, error: Option<&Error>) {
        self.observer.ended(create, outcome, error);
    }

    /// Counts and records a request that was refused before `acquire`. `request`: none for the slice of a claim.
    pub fn count_refused(
        &self,
        request: Option<&Request>,
        container: Option<Container>,
        error: &Error,
    ) {
        let kind = request.map_or(LeaseKind::Slice, |r| observer::kind_of_wanted(&r.wanted));
        let text = request.map_or(String::new(), |r| r.wanted.written());
        let holder = container.map(Holder::Container);
        let create = self.observer.begin(kind, holder, &text);
        self.observer.ended(&create, End::Refused, Some(error));
    }
}

/// The end of a series of attempts between two waits.
enum Ended {
    Ready(Vec<Held>, End),
    Denied {
        denial: Denial<Box<NoRoom>>,
        /// Whether tries in vain woke queued requests.
        woke_others: bool,
    },
}

/// Tries until the slices are there or there is no room, also after a collection.
fn attempts(
    context: &Leases<'_>,
    requester: &Requester<'_>,
    turn: &mut Turn<'_>,
    create: &mut Create,
) -> Result<Ended> {
    // One session for all attempts, closed before a wait: a long one sees stale handles.
    let driver = &context.driver();
    let (mut tried, mut collected, mut peer_since) = (Tried::default(), false, None);
    loop {
        turn.watch();
        let denial = match reserve::reserve(context, driver, requester, &mut tried, turn)? {
            Outcome::Shared(lease) => {
                driver.keep_geometry();
                context.observer.waits_no_more(create);
                context.observer.placed(&lease, EventType::Shared);
                return Ok(Ended::Ready(vec![lease], End::Shared));
            }
            Outcome::PeerCreates(peer) => {
                match pod::wait_for(context, &peer, requester.holder, &mut peer_since) {
                    Ok(()) => {}
                    // A seat may have its place in another slice.
                    Err(late) if peer.lease.share().is_some() => {
                        tried.late.push(pod::late(context, &peer, &late));
                    }
                    Err(late) => return Err(late.into()),
                }
                continue;
            }
            Outcome::Evict(idle) => {
                for instance in idle {
                    reclaim::discard_idle(context, &instance);
                    tried.idle.push(instance.id);
                }
                continue;
            }
            Outcome::Left => {
                occupied::release_previous(context, requester.holder)?;
                continue;
            }
            Outcome::Reserved(allocation) => {
                turn.unwatch();
                context.observer.waits_no_more(create);
                let end = allocation.end();
                let maker = Maker {
                    context,
                    driver,
                    levels: &requester.levels,
                };
                match maker.provision(allocation, &mut tried) {
                    Ok(leases) => {
                        driver.keep_geometry();
                        return Ok(Ended::Ready(leases, end));
                    }
                    Err(Failed { undo, error }) => {
                        let undone = record::roll_back(context, undo);
                        joined(error, undone.err())?;
                        continue;
                    }
                }
            }
            Outcome::Denied(denial) => denial,
        };
        // A container that is gone counts for a limit too, until its lease is collected.
        if denial.may_pass() && !collected {
            collected = true;
            if reclaim::collect(context, false)?.gave_room() {
                continue;
            }
        }
        let woke_others = tried.woke_others();
        return Ok(Ended::Denied {
            denial,
            woke_others,
        });
    }
}

/// Fails with the first error and the one of its rollback. A create that could not release what it had
/// goes no further: its container would have it.
fn joined(error: Option<Error>, rollback: Option<Error>) -> Result<()> {
    match (error, rollback) {
        (None, None) => Ok(()),
        (None, Some(e)) => Err(e),
        (Some(e), rollback) => Err(e.and(rollback)),
    }
}

/// Waits until it is worth another look. False when the time is over.
fn wait(context: &Leases<'_>, turn: &mut Turn<'_>) -> Result<bool> {
    loop {
        match turn.wait(&*context.bundles)? {
            Wake::Look => return Ok(true),
            Wake::TimeOut => return Ok(false),
            Wake::Collect => drop(reclaim::collect(context, false)?),
        }
    }
}
