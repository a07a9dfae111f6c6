//! Collecting what nobody gave back.

use super::release::is_due;
use super::{Leases, Patience, Returned, alive};
use crate::error::{Error, Result};
use crate::store::{Damaged, Lease, State};
use std::time::Instant;

/// What `gc` thinks of one lease.
#[derive(Debug)]
pub struct Finding {
    pub lease: Lease,
    pub outcome: Outcome,
}

#[derive(Debug)]
pub enum Outcome {
    /// Left alone, and why.
    Kept(String),
    /// Given back, or in a dry run to be given back, and why.
    Released(String),
    /// Stays on record, and is tried again.
    Failed(Error),
}

/// What `gc` found in the whole ledger.
#[derive(Debug, Default)]
pub struct Collection {
    pub leases: Vec<Finding>,
    pub damaged: Vec<(Damaged, Outcome)>,
}

impl Collection {
    /// Whether another look for room is worth it.
    pub(super) fn gave_room(&self) -> bool {
        let gave = |outcome: &Outcome| matches!(outcome, Outcome::Released(_));
        self.leases.iter().any(Finding::gave_room) || self.damaged.iter().any(|(_, o)| gave(o))
    }
}

impl Finding {
    fn gave_room(&self) -> bool {
        matches!(self.outcome, Outcome::Released(_))
    }
}

impl Leases<'_> {
    /// By hand or from a timer: everything that is due, with patience.
    pub fn gc(&self, dry_run: bool) -> Result<Collection> {
        if !dry_run && let Err(e) = self.sweep_queue() {
            tracing::warn!("{}", e.line());
        }
        self.look_through(dry_run, true, Patience::default())
    }

    /// At need, inside a create: one try each, and nothing that failed a moment ago.
    pub(super) fn collect(&self, dry_run: bool) -> Result<Collection> {
        self.look_through(dry_run, false, Patience::NONE)
    }

    fn look_through(&self, dry_run: bool, all: bool, patience: Patience) -> Result<Collection> {
        let (leases, damaged) = self.store.list()?;
        // First, and all at once: whatever their number, the others are looked through no slower.
        let is_earlier = |l: &Lease| l.boot_id != self.boot_id;
        let (earlier, leases): (Vec<_>, Vec<_>) = leases.into_iter().partition(is_earlier);
        let mut findings = self.strike_off(earlier, dry_run);
        // Shared by all: a machine full of slices in use is looked through no slower than one.
        let end = Instant::now() + patience.0;
        for lease in leases {
            let outcome = match self.why_collect(&lease, all) {
                Err(kept) => {
                    if !dry_run && let Err(e) = self.ready_without_its_front(&lease) {
                        tracing::warn!(lease = lease.id, "{}", e.line());
                    }
                    Outcome::Kept(kept)
                }
                Ok(why) if dry_run => Outcome::Released(why),
                Ok(why) => match self.release_unless(&lease.id, left(&lease, end), |now| {
                    self.why_collect(now, all).err()
                }) {
                    Ok(Returned::Yes) => Outcome::Released(why),
                    Ok(Returned::No(kept)) => Outcome::Kept(kept),
                    Err(e) => Outcome::Failed(e),
                },
            };
            findings.push(Finding { lease, outcome });
        }
        Ok(Collection {
            leases: findings,
            damaged: self.look_through_damaged(damaged, dry_run, || remaining(end)),
        })
    }

    /// The leases that nobody collects because their containers cannot be seen, for an error about
    /// room.
    pub(super) fn unseen(&self) -> Option<Error> {
        let (leases, _) = self.store.list().ok()?;
        let of_this_boot = leases.iter().filter(|l| l.boot_id == self.boot_id);
        let mut unseen = of_this_boot.filter_map(alive::unseen);
        let why = unseen.next()?;
        let what = format!(
            "leases are kept ({}) because runmig cannot see from here whether their containers live: {why}",
            1 + unseen.count()
        );
        Some(Error::new(what).hint(alive::UNSEEN_HINT))
    }

    /// Why a lease may go; else why it stays.
    fn why_collect(&self, lease: &Lease, all: bool) -> std::result::Result<String, String> {
        if lease.idle_since.is_some() {
            return self.idle_is_over(lease);
        }
        if lease.state == State::Releasing {
            return if all || is_due(lease) {
                Ok("it was being given back".to_owned())
            } else {
                Err("it is tried again later".to_owned())
            };
        }
        match alive::sign_of_life(lease) {
            Some(life) => Err(life),
            None if lease.state == State::Creating => {
                Ok("its creator died before the container was there".to_owned())
            }
            None => Ok("its container is gone".to_owned()),
        }
    }
}

fn left(lease: &Lease, end: Instant) -> Patience {
    Patience(remaining(end).0.min(Patience::with(lease).0))
}

fn remaining(end: Instant) -> Patience {
    Patience(end.saturating_duration_since(Instant::now()))
}
