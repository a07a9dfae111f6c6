//! The queue: requests wait for room in order of arrival.
//!
//! A request that finds no room takes a ticket under the plan's lock (`store/queue.rs`). From then on no
//! later request takes a place that this one could ever use (`placement`). Two events wake it: a lease
//! goes, or an earlier request leaves the queue, because it is placed, gives up or is killed. Only a
//! request that could proceed asks the driver; the others read the ledger's header, and the rest of it only when
//! a ticket left.

mod watch;

use crate::bundles::Bundles;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::leases::now;
use crate::model::{Closed, GpuUuid, OperationId, Snapshot};
use crate::placement::{self, Admitted, Constraints, NoRoom, Reservation};
use crate::refusal::{self, Waited};
use crate::request::Request;
use crate::store::{Container, Lock, Store, Ticket, Waiter, Waiting};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use watch::{Watch, Woken};

/// The time between two collections by a request that could proceed. Nothing wakes a request when a
/// container dies that no engine deletes.
const COLLECT_AGAIN: Duration = Duration::from_secs(5);
/// The time between two questions to the driver. Nothing wakes a request when an administrator destroys an
/// instance or enables MIG.
const ASK_THE_DRIVER_AGAIN: Duration = Duration::from_secs(30);
/// The same if only processes without a lease keep a request from its GPU. The driver lists a killed process
/// for a moment.
const ASK_ABOUT_PROCESSES_AGAIN: Duration = Duration::from_secs(1);
/// The delay after an event in the queue. The kernel reports the file of a killed waiter's operation a moment before it
/// releases the lock.
const SOON: Duration = Duration::from_millis(50);
/// The first pause after a vain try. A vain try creates and removes a lease, which wakes other requests,
/// whose tries wake this one. So each pause is longer, up to `COLLECT_AGAIN`.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// There may be room.
    Look,
    /// It is time to collect leases. A lease that goes wakes the request.
    Collect,
    TimeOut,
}

/// A create's turn in the queue.
pub(crate) struct Turn<'a> {
    store: &'a Store,
    operation: OperationId,
    bundle: PathBuf,
    begun: Instant,
    wait: Duration,
    /// The engine whose deadline shortened the wait.
    cut_by: Option<&'static str>,
    /// Says whether the engine's user cannot end the wait through the engine.
    is_deaf: bool,
    /// Says whether the request adopts an administrator's instances. They can lie anywhere.
    adopts: bool,
    watch: Option<Watch>,
    ticket: Option<Ticket<'a>>,
    /// What its ticket says.
    waiter: Waiter,
    look: Option<LastLook>,
    /// The number of vain tries in a row.
    in_vain: u32,
}

/// The machine at the last answer of the driver.
pub(crate) struct LastLook {
    at: Instant,
    /// The time after which the driver may say something else of which no event tells.
    ask_again: Duration,
    snapshot: Snapshot,
    wants: Wants,
}

/// The room for which a request waits.
pub(crate) enum Wants {
    Slices(Admitted),
    /// So many of these GPUs, beside those that cannot be read.
    Gpus {
        count: u32,
        of: Vec<GpuUuid>,
    },
}

impl LastLook {
    /// `has_foreign`: whether a process without a lease is in the way, which may end.
    pub(crate) fn new(snapshot: Snapshot, wants: Wants, has_foreign: bool) -> LastLook {
        // No event tells that a sick GPU has recovered, or that one can be read again.
        let is_sick = |closed: &Closed| !closed.signs.is_empty();
        let mut closed = snapshot.gpus.iter().filter_map(|gpu| gpu.closed.as_ref());
        let has_sick = closed.any(is_sick) || !snapshot.unreadable.is_empty();
        LastLook {
            at: Instant::now(),
            ask_again: match &wants {
                Wants::Gpus { .. } if has_foreign => ASK_ABOUT_PROCESSES_AGAIN,
                _ if has_sick => COLLECT_AGAIN,
                _ => ASK_THE_DRIVER_AGAIN,
            },
            snapshot,
            wants,
        }
    }
}

impl<'a> Turn<'a> {
    pub(crate) fn new(
        store: &'a Store,
        operation: &OperationId,
        config: &Config,
        request: &Request,
        holder: &Container,
    ) -> Turn<'a> {
        let wanted = request.wait.unwrap_or(config.wait);
        let deadline = request.deadline.filter(|d| wanted > d.longest_wait);
        let wait = deadline.map_or(wanted, |d| d.longest_wait);
        if let Some(d) = deadline {
            tracing::info!(
                "waits for {} at most: {} gives up on a create soon after",
                humantime::format_duration(wait),
                d.engine
            );
        }
        Turn {
            store,
            operation: operation.clone(),
            bundle: holder.bundle.clone(),
            begun: Instant::now(),
            wait,
            cut_by: deadline.map(|d| d.engine),
            is_deaf: request.deadline.is_some_and(|d| d.is_deaf()),
            adopts: config.adopt,
            watch: None,
            ticket: None,
            waiter: Waiter {
                container: holder.key.id.clone(),
                name: holder.full_name(),
                request: request.wanted.written(),
                since: now(),
                pid: std::process::id(),
                could_use: Vec::new(),
            },
            look: None,
            in_vain: 0,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.wait
    }

    /// Returns whether the request has time to wait at all.
    pub(crate) fn waits(&self) -> bool {
        !self.wait.is_zero()
    }

    /// Returns whether the request waits for its turn.
    pub(crate) fn is_in_queue(&self) -> bool {
        self.ticket.is_some()
    }

    /// Begins to watch, unless there is no time to wait. From here on it misses no event.
    pub(crate) fn watch(&mut self) {
        if !self.is_over() {
            let watch = || Watch::on(self.store, &self.bundle);
            self.watch.get_or_insert_with(watch).forget(self.store);
        }
    }

    /// Ends the watch, whose descriptors the driver may need. A place is found, and an attempt that comes to
    /// nothing watches again before the next look.
    pub(crate) fn unwatch(&mut self) {
        self.watch = None;
    }

    /// Returns the earlier requests.
    pub(crate) fn earlier(&mut self) -> Result<Vec<Waiting>> {
        let earlier = self.store.waiting_before(self.number())?;
        if let Some(watch) = &mut self.watch {
            watch.earlier.clone_from(&earlier);
        }
        Ok(earlier)
    }

    /// Returns the ticket's number. Without a ticket it is behind all others.
    fn number(&self) -> u64 {
        self.ticket.as_ref().map_or(u64::MAX, |t| t.number)
    }

    /// Joins the queue or renews the ticket, if there is time to wait. `could_use`: see [`Waiter`].
    pub(crate) fn join(
        &mut self,
        plan: &Lock,
        could_use: Vec<(GpuUuid, Vec<u32>)>,
        look: LastLook,
    ) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        self.waiter.could_use = could_use;
        let waiter = &self.waiter;
        match &mut self.ticket {
            Some(ticket) => ticket.renew(waiter)?,
            None => {
                self.ticket = Some(self.store.enqueue(plan, &self.operation, waiter)?);
                let (container, request, number) =
                    (&waiter.container, &waiter.request, self.number());
                tracing::info!(container, "waits for {request}, as number {number}");
                if self.is_deaf {
                    self.tell();
                }
            }
        }
        self.look = Some(look);
        Ok(())
    }

    /// Tells a user whose signals the engine holds back how to end the wait.
    fn tell(&self) {
        let line = format!(
            "runmig: waits up to {} for {}; hint: to end the wait, run kill {}\n",
            humantime::format_duration(self.wait),
            self.waiter.request,
            self.waiter.pid
        );
        let _ = crate::effect::write_all(&mut std::io::stderr(), line.as_bytes());
    }

    /// Lets later requests pass, because this one has its place. It keeps its number until it is done.
    pub(crate) fn step_aside(&mut self) {
        if let Some(Err(e)) = self.ticket.as_ref().map(Ticket::step_aside) {
            tracing::warn!("{}", e.line());
        }
    }

    /// Pauses after a vain try.
    pub(crate) fn pause(&mut self, was_in_vain: bool) {
        self.in_vain = if was_in_vain { self.in_vain + 1 } else { 0 };
        if was_in_vain {
            let pause = FIRST_PAUSE * (1 << self.in_vain.min(10));
            let left = self.wait.saturating_sub(self.begun.elapsed());
            crate::effect::pause(pause.min(COLLECT_AGAIN).min(left));
        }
    }

    /// Waits until there is something to do. It fails if the bundle is gone, because then nothing needs the
    /// container any more.
    pub(crate) fn wait(&mut self, bundles: &dyn Bundles) -> Result<Wake> {
        let longest = COLLECT_AGAIN.min(self.ask_again());
        let mut gap = longest;
        let mut next = Instant::now() + gap;
        let mut held_up_by = None;
        while !self.is_over() {
            let left = self.wait.saturating_sub(self.begun.elapsed());
            let time = left.min(next.saturating_duration_since(Instant::now()));
            let number = self.number();
            let Some(watch) = &mut self.watch else {
                return Ok(Wake::TimeOut);
            };
            let woken = watch.wait(self.store, bundles, number, time)?;
            let was_held_up = held_up_by.is_some();
            // A lease that goes does not help a request that others hold up.
            if woken != Woken::ByLease || !was_held_up {
                held_up_by = self.held_up_by()?;
                gap = match (woken, held_up_by) {
                    (Woken::ByQueue, _) => SOON,
                    (Woken::No, Some(_)) => (gap * 4).min(ASK_THE_DRIVER_AGAIN),
                    _ => longest,
                };
                next = Instant::now() + gap;
            }
            match held_up_by {
                Some(others) if !self.is_stale(others) => {}
                None if woken == Woken::No && !was_held_up && !self.is_stale(1) => {
                    return Ok(Wake::Collect);
                }
                Some(_) | None => return Ok(Wake::Look),
            }
        }
        Ok(Wake::TimeOut)
    }

    /// Returns the number of requests ahead if they hold this one up. Returns none if, by the last look, an answer of the
    /// driver could help.
    fn held_up_by(&mut self) -> Result<Option<usize>> {
        let (state, number) = (self.store.state()?, self.number());
        // A request that had stepped aside may be back.
        if let Some(watch) = &mut self.watch {
            watch.earlier = state.queue.before(number).to_vec();
        }
        let Some(look) = self.look.as_ref().filter(|_| !self.adopts) else {
            return Ok(None);
        };
        // A repair may have lost its ticket. Then it has no place until the next look.
        if !state.queue.has(number) {
            return Ok(None);
        }
        let all = state.queue.before(number);
        let is_at_work = |other: &&Waiting| self.store.is_at_work(&other.operation);
        let earlier = all.iter().filter(is_at_work);
        let admitted = match &look.wants {
            Wants::Slices(admitted) => admitted,
            Wants::Gpus { count, of } => {
                let reserved = reserved_gpus(earlier);
                let left = of.iter().filter(|gpu| !reserved.contains(gpu)).count();
                return Ok((left < *count as usize).then_some(all.len()));
            }
        };
        let mut blockers = Vec::new();
        // Looks in queue order, and no further than needed: most often the first request holds this one up.
        for other in earlier {
            let mut more = reservations([other]);
            more.retain(|a| !blockers.contains(a));
            if more.is_empty() {
                continue;
            }
            blockers.append(&mut more);
            let wanted = Constraints {
                blockers: &blockers,
                ..admitted.wanted()
            };
            if placement::is_blocked(&look.snapshot, &wanted) {
                return Ok(Some(all.len()));
            }
        }
        Ok(None)
    }

    /// Returns whether the last look is so old that the machine may have changed. The limit grows with the
    /// number of requests ahead. So any number of waiters together asks the driver only now and then.
    fn is_stale(&self, others: usize) -> bool {
        let times = u32::try_from(others).unwrap_or(u32::MAX);
        let asked = self.look.as_ref().map(|look| look.at.elapsed());
        asked.is_none_or(|age| age >= self.ask_again() * times)
    }

    fn ask_again(&self) -> Duration {
        { self.look.as_ref() }.map_or(ASK_THE_DRIVER_AGAIN, |look| look.ask_again)
    }

    /// Returns the error of a create whose time to wait is over, or that has no time to wait.
    pub(crate) fn give_up(&mut self, no: &NoRoom) -> Error {
        let blockers = self.earlier().unwrap_or_default();
        let waited = (!self.wait.is_zero()).then_some(Waited {
            time: self.wait,
            cut_by: self.cut_by,
        });
        refusal::error(no, &blockers, waited)
    }
}

/// Returns the profiles that these requests could use, by GPU.
pub(crate) fn reservations<'a>(of: impl IntoIterator<Item = &'a Waiting>) -> Vec<Reservation> {
    let mut all = BTreeSet::new();
    for (gpu, profiles) in of.into_iter().flat_map(|w| &w.waiter.could_use) {
        all.extend(profiles.iter().map(|id| (gpu, *id)));
    }
    let reservation = |(gpu, profile_id): (&GpuUuid, u32)| Reservation {
        gpu: gpu.clone(),
        profile_id,
    };
    all.into_iter().map(reservation).collect()
}

/// Returns the GPUs that requests for whole GPUs among these could use.
pub(crate) fn reserved_gpus<'a>(of: impl IntoIterator<Item = &'a Waiting>) -> BTreeSet<GpuUuid> {
    let could_use = of.into_iter().flat_map(|w| &w.waiter.could_use);
    let whole = could_use.filter(|(_, profiles)| profiles.is_empty());
    whole.map(|(gpu, _)| gpu.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Gpu, MigMode, Placement, Profile};
    use crate::store::Operation;
    use std::path::Path;

    /// Looks at an empty machine, on which the first request could use every place.
    fn look(ago: Duration) -> LastLook {
        let profile = Profile {
            name: "1g.10gb".into(),
            id: 19,
            placements: vec![Placement { start: 0, size: 1 }],
            max_instances: 1,
            ..Profile::default()
        };
        let gpu = Gpu {
            index: 0,
            minor: 0,
            uuid: "GPU-0".into(),
            name: String::new(),
            pci_bus_id: String::new(),
            mig: MigMode::Enabled,
            mig_pending: None,
            profiles: vec![profile],
            instances: Vec::new(),
            closed: None,
        };
        LastLook {
            at: Instant::now().checked_sub(ago).unwrap(),
            ask_again: ASK_THE_DRIVER_AGAIN,
            snapshot: Snapshot {
                gpus: vec![gpu],
                ..Snapshot::default()
            },
            wants: Wants::Slices(Admitted {
                slices: vec![crate::request::Slice::Profile("1g.10gb".parse().unwrap())],
                ..Admitted::default()
            }),
        }
    }

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("state"), Duration::from_secs(1)).unwrap();
        (dir, store)
    }

    fn waiter() -> Waiter {
        Waiter {
            could_use: vec![("GPU-0".into(), vec![19])],
            ..Waiter::default()
        }
    }

    fn turn<'a>(
        store: &'a Store,
        dir: &Path,
        operation: &Operation,
        ticket: Ticket<'a>,
    ) -> Turn<'a> {
        std::fs::write(dir.join("config.json"), "{}").unwrap();
        Turn {
            store,
            operation: operation.id().clone(),
            bundle: dir.to_owned(),
            begun: Instant::now(),
            wait: Duration::ZERO,
            cut_by: None,
            is_deaf: false,
            adopts: false,
            watch: Some(Watch::on(store, dir)),
            ticket: Some(ticket),
            waiter: waiter(),
            look: None,
            in_vain: 0,
        }
    }

    /// It was aside when the second one looked, and got no place.
    #[test]
    fn end_of_request_that_came_back_wakes() {
        let (dir, store) = store();
        let plan = store.lock_plan("test").unwrap();
        let operations = [(); 2].map(|()| store.begin().unwrap());
        let join = |o: &Operation| store.enqueue(&plan, o.id(), &waiter()).unwrap();
        let [mut first, second] = operations.each_ref().map(join);
        let mut turn = turn(&store, dir.path(), &operations[1], second);
        first.step_aside().unwrap();
        turn.watch();
        assert_eq!(turn.earlier().unwrap(), []);
        first.renew(&waiter()).unwrap();
        turn.look = Some(look(Duration::ZERO));
        assert_eq!(turn.held_up_by().unwrap(), Some(1));
        drop(first);
        let number = turn.number();
        let watch = turn.watch.as_mut().unwrap();
        let bundles = &crate::bundles::NoBundles;
        let woken = watch.wait(&store, bundles, number, COLLECT_AGAIN).unwrap();
        assert!(woken == Woken::ByQueue);
    }

    #[test]
    fn earlier_requests_hold_up_one_for_whole_gpus() {
        let (dir, store) = store();
        let plan = store.lock_plan("test").unwrap();
        let operations = [(); 2].map(|()| store.begin().unwrap());
        let first = Waiter {
            could_use: vec![("GPU-0".into(), Vec::new())],
            ..Waiter::default()
        };
        let _first = store.enqueue(&plan, operations[0].id(), &first).unwrap();
        let second = store.enqueue(&plan, operations[1].id(), &waiter()).unwrap();
        let mut turn = turn(&store, dir.path(), &operations[1], second);
        for (count, of, ahead) in rows! {
            1, &["GPU-0"][..] => Some(1);
            1, &["GPU-0", "GPU-1"] => None;
            2, &["GPU-0", "GPU-1"] => Some(1);
        } {
            let of = of.iter().map(|gpu| GpuUuid::from(*gpu)).collect();
            turn.look = Some(LastLook::new(
                Snapshot::default(),
                Wants::Gpus { count, of },
                false,
            ));
            assert_eq!(turn.held_up_by().unwrap(), ahead, "{count}");
        }
        turn.adopts = true;
        assert_eq!(turn.held_up_by().unwrap(), None);
    }

    /// An administrator may have enabled MIG on a place that the first request cannot use.
    #[test]
    fn held_up_request_asks_driver_sometimes() {
        let (dir, store) = store();
        let plan = store.lock_plan("test").unwrap();
        let operations = [(); 3].map(|()| store.begin().unwrap());
        let join = |o: &Operation| store.enqueue(&plan, o.id(), &waiter()).unwrap();
        let [_first, _second, third] = operations.each_ref().map(join);
        let mut turn = turn(&store, dir.path(), &operations[2], third);
        let mut waits = |ago: Duration, time: Duration| {
            turn.look = Some(look(ago));
            turn.begun = Instant::now();
            turn.wait = time;
            turn.wait(&crate::bundles::NoBundles).unwrap() == Wake::TimeOut
        };
        let short = Duration::from_millis(20);
        assert!(waits(Duration::ZERO, short));
        // Two requests are ahead, and also ask the driver.
        assert!(waits(ASK_THE_DRIVER_AGAIN, short));
        assert!(!waits(ASK_THE_DRIVER_AGAIN * 2, COLLECT_AGAIN * 2));
    }

    /// A request that waits for its turn goes on to wait where another fails.
    #[test]
    fn request_is_in_queue_with_its_ticket() {
        let (dir, store) = store();
        let plan = store.lock_plan("test").unwrap();
        let operation = store.begin().unwrap();
        let ticket = store.enqueue(&plan, operation.id(), &waiter()).unwrap();
        let mut turn = turn(&store, dir.path(), &operation, ticket);
        assert!(turn.is_in_queue());
        turn.ticket = None;
        assert!(!turn.is_in_queue());
    }
}
