//! Waiting for room, in order of arrival.
//!
//! Who finds no room takes a number under the plan's lock (`store/queue.rs`), and from then on nobody
//! who comes later takes what it could ever use (`placement/pass.rs`). It is woken by a lease that goes
//! and by whoever before it leaves the queue: placed, given up or killed. Only who could go on asks the
//! driver; the rest read the queue.

use super::acquire::Applicant;
use super::rules::Ruled;
use super::watch::Watch;
use super::{Leases, now};
use crate::config::Config;
use crate::error::{Error, Result, printable};
use crate::model::Snapshot;
use crate::placement::{self, Awaited, NoRoom, Reserved, Wanted};
use crate::request::{self, Request};
use crate::store::{Lock, Ticket, Waiter, Waiting};
use std::time::{Duration, Instant};

/// A container that dies wakes nobody where no engine deletes it, so whoever could go on collects so
/// often.
const COLLECT_AGAIN: Duration = Duration::from_secs(5);
/// Nor does an administrator who destroys an instance.
const ASK_THE_DRIVER_AGAIN: Duration = Duration::from_secs(30);
/// The kernel tells of a killed waiter's file a moment before it lets go of the lock.
const SOON: Duration = Duration::from_millis(50);
/// What is tried in vain is a lease that comes and goes, which wakes others, whose tries wake us: each
/// time a longer pause, up to `COLLECT_AGAIN`.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A create's place among those who wait.
pub(super) struct Place {
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
    ours: Vec<Reserved>,
}

impl Place {
    pub fn new(config: &Config, asked: &Request) -> Place {
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
            let watch = || Watch::on(&leases.store);
            self.watch.get_or_insert_with(watch).forget();
        }
    }

    /// Those who came before.
    pub fn ahead(&self, leases: &Leases<'_>) -> Result<Vec<Waiting>> {
        let mut waiting = leases.store.waiting()?;
        if let Some(ticket) = &self.ticket {
            waiting.retain(|w| w.number < ticket.number);
        }
        Ok(waiting)
    }

    /// There is no room now: behind those who wait, unless it was never to wait.
    pub fn join(
        &mut self,
        leases: &Leases<'_>,
        plan: &Lock,
        who: &Applicant<'_>,
        (snapshot, ruled, ours): (Snapshot, Ruled, Vec<Reserved>),
    ) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        let mut could_use: Vec<(String, Vec<u32>)> = Vec::new();
        for awaited in placement::could_use(&snapshot, &ruled.wanted()) {
            match could_use.iter_mut().find(|(gpu, _)| *gpu == awaited.gpu) {
                Some((_, profiles)) => profiles.push(awaited.profile_id),
                None => could_use.push((awaited.gpu, vec![awaited.profile_id])),
            }
        }
        let waiter = Waiter {
            container: who.holder.key.id.clone(),
            request: request::written(&who.asked.alternatives),
            since: match self.written.since.is_empty() {
                true => now(),
                false => self.written.since.clone(),
            },
            could_use,
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
    /// found was tried, and came to nothing.
    pub fn wait(&mut self, leases: &Leases<'_>, woke_others: bool) -> Result<bool> {
        self.in_vain = if woke_others { self.in_vain + 1 } else { 0 };
        if woke_others {
            let pause = FIRST_PAUSE * (1 << self.in_vain.min(10));
            let left = self.wait.saturating_sub(self.begun.elapsed());
            std::thread::sleep(pause.min(COLLECT_AGAIN).min(left));
        }
        let mut gap = COLLECT_AGAIN;
        while !self.is_over() {
            let left = self.wait.saturating_sub(self.begun.elapsed());
            let number = self.ticket.as_ref().map_or(u64::MAX, |t| t.number);
            let Some(watch) = &mut self.watch else {
                return Ok(false);
            };
            let woken = watch.wait(&leases.store, number, left.min(gap))?;
            if self.is_held_up(leases)? {
                gap = if woken { SOON } else { COLLECT_AGAIN };
                continue;
            }
            let seen = self.seen.as_ref().map(|seen| seen.at.elapsed());
            if woken || gap == SOON || seen.is_none_or(|age| age >= ASK_THE_DRIVER_AGAIN) {
                return Ok(true);
            }
            // What goes by this wakes us.
            leases.collect(false)?;
            gap = COLLECT_AGAIN;
        }
        Ok(false)
    }

    /// Whether nothing that the driver could say would help, as far as is known.
    fn is_held_up(&self, leases: &Leases<'_>) -> Result<bool> {
        let Some(seen) = self.seen.as_ref().filter(|_| !leases.config.adopt) else {
            // What an administrator made is handed out wherever it lies.
            return Ok(false);
        };
        let ahead = awaited(&self.ahead(leases)?, &seen.snapshot);
        let wanted = Wanted {
            ahead: &ahead,
            ours: &seen.ours,
            ..seen.ruled.wanted()
        };
        Ok(placement::is_held_up(&seen.snapshot, &wanted))
    }

    /// Why there was no room, who was before it, and how long it waited.
    pub fn give_up(&self, leases: &Leases<'_>, no: NoRoom) -> Error {
        let (NoRoom::Never { mut why, hint } | NoRoom::Now { mut why, hint }) = no;
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

/// For who is told why there is no room: who came before.
pub(super) fn behind(ahead: &[Waiting]) -> String {
    const SHOWN: usize = 3;
    let mut names: Vec<String> = ahead.iter().take(SHOWN).map(name).collect();
    if ahead.len() > SHOWN {
        names.push("…".to_owned());
    }
    let names = names.join(", ");
    match ahead.len() {
        0 => String::new(),
        1 => format!("; 1 waits before it ({names})"),
        n => format!("; {n} wait before it ({names})"),
    }
}

fn name(waiting: &Waiting) -> String {
    match &waiting.waiter {
        Some(w) => printable(&format!("container {} for {}", w.container, w.request)),
        None => "one that a newer runmig wrote".to_owned(),
    }
}

/// What those wait for who came before. Of whom that cannot be read, everything.
pub(super) fn awaited(ahead: &[Waiting], snapshot: &Snapshot) -> Vec<Awaited> {
    let mut all = Vec::new();
    let mut add = |gpu: &str, profile_id: u32| {
        let one = Awaited {
            gpu: gpu.to_owned(),
            profile_id,
        };
        if !all.contains(&one) {
            all.push(one);
        }
    };
    for waiting in ahead {
        match &waiting.waiter {
            Some(waiter) => {
                for (gpu, profiles) in &waiter.could_use {
                    profiles.iter().for_each(|id| add(gpu, *id));
                }
            }
            None => {
                for gpu in &snapshot.gpus {
                    gpu.profiles.iter().for_each(|p| add(&gpu.uuid, p.id));
                }
            }
        }
    }
    all
}
