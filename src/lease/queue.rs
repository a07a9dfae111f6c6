//! Waiting for room, in order of arrival.
//!
//! Who finds no room takes a number under the plan's lock (`store/queue.rs`), and from then on nobody
//! who comes later takes what it could ever use (`placement/backfill.rs`). It is woken by a lease that goes
//! and by whoever before it leaves the queue: placed, given up or killed. Only who could go on asks the
//! driver; the rest read the queue.

use super::acquire::Applicant;
use super::ahead::{awaited, behind, could_use};
use super::rules::Ruled;
use super::watch::{Watch, Woken};
use super::{Leases, now};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::model::Snapshot;
use crate::placement::{self, Constraints, Rejection, Slot};
use crate::request::{self, Request};
use crate::store::{Lock, Ticket, Waiter, Waiting};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A container that dies wakes nobody where no engine deletes it, so whoever could go on collects so
/// often.
const COLLECT_AGAIN: Duration = Duration::from_secs(5);
/// Nor does an administrator who destroys an instance, or switches MIG on.
const ASK_THE_DRIVER_AGAIN: Duration = Duration::from_secs(30);
/// The kernel tells of a killed waiter's file a moment before it lets go of the lock.
const SOON: Duration = Duration::from_millis(50);
/// What is tried in vain is a lease that comes and goes, which wakes others, whose tries wake us: each
/// time a longer pause, up to `COLLECT_AGAIN`.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A create's place among those who wait.
pub(super) struct Place {
    bundle: PathBuf,
    begun: Instant,
    wait: Duration,
    /// The engine whose deadline made it shorter than was asked for.
    cut_by: Option<&'static str>,
    watch: Option<Watch>,
    ticket: Option<Ticket>,
    /// What its ticket says.
    written: Waiter,
    seen: Option<Seen>,
    /// How often in a row it tried something in vain.
    in_vain: u32,
}

/// The world as it was when we last asked the driver.
struct Seen {
    at: Instant,
    snapshot: Snapshot,
    ruled: Ruled,
    ours: Vec<Slot>,
}

impl Place {
    pub fn new(config: &Config, asked: &Request, bundle: &Path) -> Place {
        let wanted = asked.wait.unwrap_or(config.wait);
        let deadline = asked.deadline.filter(|d| wanted > d.longest_wait);
        let wait = deadline.map_or(wanted, |d| d.longest_wait);
        if let Some(d) = deadline {
            tracing::info!(
                "waits for {} at most: {} gives up on a create soon after",
                humantime::format_duration(wait),
                d.engine
            );
        }
        Place {
            bundle: bundle.to_owned(),
            begun: Instant::now(),
            wait,
            cut_by: deadline.map(|d| d.engine),
            watch: None,
            ticket: None,
            written: Waiter::default(),
            seen: None,
            in_vain: 0,
        }
    }

    pub fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.wait
    }

    /// From here on nothing that happens is missed.
    pub fn look(&mut self, leases: &Leases<'_>) {
        if !self.is_over() {
            let watch = || Watch::on(&leases.store, &self.bundle);
            self.watch.get_or_insert_with(watch).forget();
        }
    }

    /// Those who came before.
    pub fn ahead(&self, leases: &Leases<'_>) -> Result<Vec<Waiting>> {
        leases.store.waiting_before(self.number())?.collect()
    }

    /// Behind all while it has none.
    fn number(&self) -> u64 {
        self.ticket.as_ref().map_or(u64::MAX, |t| t.number)
    }

    /// There is no room now: behind those who wait, unless it was never to wait.
    pub fn join(
        &mut self,
        leases: &Leases<'_>,
        plan: &Lock,
        who: &Applicant<'_>,
        (snapshot, ruled, ours): (Snapshot, Ruled, Vec<Slot>),
    ) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        let waiter = Waiter {
            container: who.holder.key.id.clone(),
            request: request::written(&who.asked.alternatives),
            since: match self.written.since.is_empty() {
                true => now(),
                false => self.written.since.clone(),
            },
            pid: Some(std::process::id()),
            could_use: could_use(leases, &snapshot, &ruled, who),
        };
        match &mut self.ticket {
            Some(_) if self.written == waiter => {}
            Some(ticket) => ticket.write(&waiter)?,
            None => {
                leases.store.sweep_queue(plan);
                self.ticket = Some(leases.store.enqueue(plan, &waiter)?);
                tracing::info!(
                    container = waiter.container,
                    "waits for {}, as number {}",
                    waiter.request,
                    self.ticket.as_ref().map_or(0, |t| t.number)
                );
            }
        }
        self.written = waiter;
        self.seen = Some(Seen {
            at: Instant::now(),
            snapshot,
            ruled,
            ours,
        });
        Ok(())
    }

    /// It has found its place: nobody has to wait behind it. The number stays its own until it is done.
    pub fn step_aside(&mut self) {
        self.written.could_use.clear();
        if let Some(Err(e)) = self.ticket.as_mut().map(Ticket::step_aside) {
            tracing::warn!("{}", e.line());
        }
    }

    /// Until it is worth another look. False when the time is over. `woke_others`: what the last look
    /// found was tried, and came to nothing. An error when nobody has a use for its container any more.
    pub fn wait(&mut self, leases: &Leases<'_>, woke_others: bool) -> Result<bool> {
        self.in_vain = if woke_others { self.in_vain + 1 } else { 0 };
        if woke_others {
            let pause = FIRST_PAUSE * (1 << self.in_vain.min(10));
            let left = self.wait.saturating_sub(self.begun.elapsed());
            std::thread::sleep(pause.min(COLLECT_AGAIN).min(left));
        }
        let mut gap = COLLECT_AGAIN;
        let mut next = Instant::now() + gap;
        let mut held_up_by = None;
        while !self.is_over() {
            let left = self.wait.saturating_sub(self.begun.elapsed());
            let time = left.min(next.saturating_duration_since(Instant::now()));
            let number = self.number();
            let Some(watch) = &mut self.watch else {
                return Ok(false);
            };
            let woken = watch.wait(&leases.store, number, time)?;
            let was_held_up = held_up_by.is_some();
            // To who is held up by others a lease that goes makes no difference.
            if woken != Woken::ByLease || !was_held_up {
                held_up_by = self.held_up_by(leases)?;
                gap = match (woken, held_up_by) {
                    (Woken::ByQueue, _) => SOON,
                    (Woken::No, Some(_)) => (gap * 4).min(ASK_THE_DRIVER_AGAIN),
                    _ => COLLECT_AGAIN,
                };
                next = Instant::now() + gap;
            }
            match held_up_by {
                Some(others) if !self.is_stale(others) => {}
                None if woken == Woken::No && !was_held_up && !self.is_stale(1) => {
                    // What goes by this wakes us.
                    leases.collect(false)?;
                }
                Some(_) | None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// By how many that came before, at most; none where the driver could say something that would
    /// help, as far as is known.
    fn held_up_by(&self, leases: &Leases<'_>) -> Result<Option<u64>> {
        let Some(seen) = self.seen.as_ref().filter(|_| !leases.config.adopt) else {
            // What an administrator made is handed out wherever it lies.
            return Ok(None);
        };
        let number = self.number();
        let (mut first, mut ahead) = (None, Vec::new());
        // In their order, and no further than needed: most often it is the first of all.
        for other in leases.store.waiting_before(number)? {
            let other = other?;
            let first = *first.get_or_insert(other.number);
            let mut more = awaited(&[other], &seen.snapshot);
            more.retain(|a| !ahead.contains(a));
            if more.is_empty() {
                continue;
            }
            ahead.append(&mut more);
            let wanted = Constraints {
                blockers: &ahead,
                ours: &seen.ours,
                ..seen.ruled.wanted()
            };
            if placement::is_blocked(&seen.snapshot, &wanted) {
                return Ok(Some(number - first));
            }
        }
        Ok(None)
    }

    /// Whether it has not asked the driver for so long that the machine may be another. The more are
    /// before it the longer that is, so that however many wait the driver is asked now and then.
    fn is_stale(&self, others: u64) -> bool {
        let times = u32::try_from(others).unwrap_or(u32::MAX);
        let asked = self.seen.as_ref().map(|seen| seen.at.elapsed());
        asked.is_none_or(|age| age >= ASK_THE_DRIVER_AGAIN * times)
    }

    /// Why there was no room, who was before it, and how long it waited.
    pub fn give_up(&self, leases: &Leases<'_>, no: Rejection) -> Error {
        let (Rejection::Unsatisfiable { mut why, mut hint }
        | Rejection::NoCapacity { mut why, mut hint }) = no;
        let ahead = self.ahead(leases).unwrap_or_default();
        why.push_str(&behind(&ahead));
        if !self.wait.is_zero() {
            why.push_str(&format!(
                "; waited {}",
                humantime::format_duration(self.wait)
            ));
            if let Some(engine) = self.cut_by {
                why.push_str(&format!(", as {engine} gives up soon after"));
            }
            // It has done so.
            let advice: Vec<&str> = { hint.split("; ") }
                .filter(|part| !part.contains(request::WAIT))
                .collect();
            hint = advice.join("; ");
        }
        Error::new(why).hint(hint)
    }
}

impl Leases<'_> {
    /// Takes away what killed waiters left, if there is anything in the queue.
    pub(super) fn sweep_queue(&self) -> Result<()> {
        if self.store.is_queue_empty() {
            return Ok(());
        }
        let plan = self.store.lock_plan("gc")?;
        self.store.sweep_queue(&plan);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Gpu, MigMode, Placement, Profile};
    use crate::store::Store;

    /// Of a machine on which nothing lies, and on which who is first could use all there is.
    fn seen(ago: Duration) -> Seen {
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
        };
        Seen {
            at: Instant::now().checked_sub(ago).unwrap(),
            snapshot: Snapshot {
                gpus: vec![gpu],
                ..Snapshot::default()
            },
            ruled: Ruled {
                slices: vec![request::Slice::Profile("1g.10gb".parse().unwrap())],
                ..Ruled::default()
            },
            ours: Vec::new(),
        }
    }

    /// MIG may have been switched on elsewhere, where who is first may not go.
    #[test]
    fn who_is_held_up_asks_the_driver_now_and_then() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::default();
        let leases = Leases {
            config: &config,
            store: Store::open(&dir.path().join("state"), Duration::from_secs(1)).unwrap(),
            boot_id: "b".into(),
            locked_bundle: None,
        };
        let plan = leases.store.lock_plan("test").unwrap();
        let waiter = Waiter {
            could_use: vec![("GPU-0".into(), vec![19])],
            ..Waiter::default()
        };
        let join = || leases.store.enqueue(&plan, &waiter).unwrap();
        let (_first, _second, third) = (join(), join(), join());
        std::fs::write(dir.path().join("config.json"), "{}").unwrap();
        let mut place = Place {
            bundle: dir.path().to_owned(),
            begun: Instant::now(),
            wait: Duration::ZERO,
            cut_by: None,
            watch: Some(Watch::on(&leases.store, dir.path())),
            ticket: Some(third),
            written: waiter.clone(),
            seen: None,
            in_vain: 0,
        };
        let mut waits = |ago: Duration, time: Duration| {
            place.seen = Some(seen(ago));
            place.begun = Instant::now();
            place.wait = time;
            // False: until the time was over.
            !place.wait(&leases, false).unwrap()
        };
        let short = Duration::from_millis(20);
        assert!(waits(Duration::ZERO, short));
        // Two are before it, who ask as well.
        assert!(waits(ASK_THE_DRIVER_AGAIN, short));
        assert!(!waits(ASK_THE_DRIVER_AGAIN * 2, COLLECT_AGAIN * 2));
    }
}
