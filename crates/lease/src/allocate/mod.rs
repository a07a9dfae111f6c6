//! From a request to slices that exist: admit, plan, reserve, provision; wait and try again.

mod admit;
mod attach;
mod claim;
mod found;
mod levels;
mod limit;
mod look;
mod occupied;
mod outside_mig;
mod plan;
mod pod;
mod provision;
mod record;
mod requester;
mod reserve;
mod seats;
pub mod what_if;

pub use attach::POD_PATIENCE;
pub use claim::{ClaimNews, ClaimPlace};
pub use levels::levels;
pub use limit::MissingLimit;
pub use requester::Acquired;

use crate::counters::{LeaseKind, Outcome as End};
use crate::error::{Error, Result};
use crate::events::EventType;
use crate::leases::Leases;
use crate::model::Cgroup;
use crate::queue::{Turn, Wake};
use crate::reclaim::{self, Finding, liveness};
use crate::request::Request;
use crate::store::{Container, Held, Holder};
use crate::{observer, refusal};
use found::Denial;
use levels::LazyLevels;
use provision::Maker;
use record::{Failed, Undo};
use requester::{Requester, Tried};
use reserve::Outcome;
use std::time::{Duration, Instant};

/// A refusal is worded by another look at the machine only if the last attempt took no longer: a slow driver would keep a create
/// far beyond its time to wait.
const MAY_LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Leases<'_> {
    /// Returns leases on slices that exist. A `count_` function, or `created`, tells the end of the create.
    pub fn acquire(
        &self,
        holder: Container,
        request: &Request,
        cgroup: Cgroup,
    ) -> Result<Acquired> {
        let kind = observer::kind_of_wanted(&request.wanted);
        let named = Holder::Container(holder.clone());
        let written = request.wanted.written();
        self.observer.begin(kind, Some(named), &written);
        let acquired = leases_for(self, holder, request, cgroup);
        self.observer.waits_no_more();
        acquired.inspect_err(|e| self.observer.failed(e))
    }
}

fn leases_for(
    context: &Leases<'_>,
    holder: Container,
    request: &Request,
    cgroup: Cgroup,
) -> Result<Acquired> {
    // No record may name namespaces that no later process can see, since its slice would never come back.
    liveness::namespaces()?;
    occupied::make_way(context, &holder, &cgroup)?;
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
        let begun = Instant::now();
        let (no, woke_others) = match attempts(context, &requester, &mut turn)? {
            Ended::Ready(leases, end) => {
                context.observer.ends(end);
                return Ok(Acquired { leases, operation });
            }
            Ended::Unanswered(e) => {
                tracing::warn!("waits on: {}", e.line());
                match wait(context, &mut turn, None)? {
                    true => continue,
                    false => return Err(e),
                }
            }
            Ended::Denied(Denial::Limit(over), _) => {
                context.observer.ends(End::Limited);
                let (wanted, asked) = (&request.wanted, request.wanted.written());
                return Err(refusal::denied(wanted, &asked, &over));
            }
            Ended::Denied(Denial::Room(no), woke_others) => (no, woke_others),
        };
        if !no.may_pass() {
            context.observer.ends(End::Unsatisfiable);
            return Err(refusal::error(&no, &[], None));
        }
        let is_quick = begun.elapsed() <= MAY_LOOK_AGAIN;
        if !wait(context, &mut turn, Some(woke_others))? {
            let no = match is_quick {
                true => what_if::explained(context, &requester, &mut turn, no),
                false => no,
            };
            context.observer.ends(match turn.waits() {
                true => End::TimedOut,
                false => no.outcome(),
            });
            let error = turn.give_up(&no);
            return Err(error.and(reclaim::unseen(context)));
        }
    }
}

impl Leases<'_> {
    /// Counts the create, which ends with a container. `runtime`: the time of its low-level runtime.
    pub fn count_created(&self, runtime: Option<Duration>) {
        self.observer.count_created(runtime);
    }

    /// Records that the create ended with a container on these leases.
    pub fn created(&self, leases: &[Held], runtime: Option<Duration>) {
        if !self.observer.is_creating() {
            return;
        }
        let now = |held: &Held| {
            // Without a record, the container has ended already, or the read failed.
            let now = self.store.get(&held.lease.id).ok().flatten();
            now.unwrap_or_else(|| held.clone())
        };
        let leases: Vec<Held> = leases.iter().map(now).collect();
        self.observer.created(&leases, runtime);
    }

    /// Counts and records that the create failed after `acquire`, unless its end is told. `error`: none where the low-level
    /// runtime told it.
    pub fn count_failed(&self, outcome: End, error: Option<&Error>) {
        self.observer.ended(outcome, error);
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
        self.observer.begin(kind, holder, &text);
        self.observer.ended(End::Refused, Some(error));
    }
}

/// The end of a series of attempts between two waits.
enum Ended {
    Ready(Vec<Held>, End),
    /// The flag says whether vain tries woke queued requests.
    Denied(Denial, bool),
    /// The driver does not answer a request that stands in the queue.
    Unanswered(Error),
}

/// Tries until the slices are there or there is no room, also after a collection.
fn attempts(context: &Leases<'_>, requester: &Requester<'_>, turn: &mut Turn<'_>) -> Result<Ended> {
    // One session for all attempts, closed before a wait: a long one sees stale handles.
    let driver = &context.driver();
    let (mut tried, mut collected) = (Tried::default(), false);
    loop {
        turn.watch();
        let denial = match reserve::reserve(context, driver, requester, &mut tried, turn)? {
            Outcome::Shared(lease) => {
                driver.keep_geometry();
                context.observer.waits_no_more();
                context.observer.placed(&lease, EventType::Shared);
                return Ok(Ended::Ready(vec![lease], End::Shared));
            }
            Outcome::PeerCreates(peer) => {
                pod::wait_for(context, &peer, requester.holder, &mut tried)?;
                continue;
            }
            Outcome::Evict(idle) => {
                tried.evict(context, idle);
                continue;
            }
            Outcome::Left => {
                occupied::release_previous(context, requester.holder)?;
                continue;
            }
            Outcome::Reserved(parts) => {
                turn.unwatch();
                context.observer.waits_no_more();
                let end = record::end(&parts);
                let maker = Maker {
                    context,
                    driver,
                    levels: &requester.levels,
                };
                match maker.provision(parts, &mut tried) {
                    Ok(leases) => {
                        driver.keep_geometry();
                        return Ok(Ended::Ready(leases, end));
                    }
                    Err(Failed { undo, error }) => {
                        // The next choice leaves out a GPU that another process keeps locked.
                        let is_locked = |undo: &Undo| matches!(undo, Undo::NotBegun(_));
                        let error = error.filter(|_| !undo.iter().any(is_locked));
                        Failed { undo, error }.undo(context)?;
                        continue;
                    }
                }
            }
            // Without the plan's lock: a release takes the GPU's.
            Outcome::Interrupted(failed) => {
                failed.undo(context)?;
                continue;
            }
            Outcome::Denied(denial) => denial,
            Outcome::Unanswered(e) => return Ok(Ended::Unanswered(e)),
        };
        // A container that is gone counts for a limit too, until its lease is collected.
        if denial.may_pass() && !collected {
            collected = true;
            let found = reclaim::collect(context)?;
            if found.iter().any(Finding::gave_room) {
                continue;
            }
        }
        return Ok(Ended::Denied(denial, tried.woke_others()));
    }
}

/// Waits until it is worth another look. False when the time is over. `woke_others`: whether the tries before it woke queued
/// requests; none where the driver did not answer.
fn wait(context: &Leases<'_>, turn: &mut Turn<'_>, woke_others: Option<bool>) -> Result<bool> {
    let since = Instant::now();
    if turn.waits() {
        context.observer.waits();
    }
    if let Some(woke_others) = woke_others {
        turn.pause(woke_others);
    }
    let goes_on = loop {
        match turn.wait(&*context.bundles)? {
            Wake::Look => break true,
            Wake::TimeOut => break false,
            Wake::Collect => drop(reclaim::collect(context)?),
        }
    };
    context.observer.waited(since);
    Ok(goes_on)
}
