//! Ends what claims and their containers left, for the driver that watches the ledger.

use super::claim::release_dead;
use super::damaged::release_damaged;
use super::finding::Patience;
use super::gc::release_going;
use super::release::is_due;
use crate::context::LeaseContext;
use crate::error::{self, Result};
use crate::store::{self, Damaged, Entry};

/// Ends what containers of claims left: their leases, and the instances whose last lease was a container's. It also
/// ends what a kill left in the middle: promises without their instance, and instances without their lease. Leases without
/// a claim are none of its business.
///
/// # Errors
/// An instance that is in use. It is quarantined, and the next call tries again.
pub(crate) fn release_ended(context: &LeaseContext<'_>) -> Result<()> {
    let listing = context.store.list()?;
    let release = |entry: &Entry| match entry {
        Entry::Held(held) => match &held.lease.shared_in {
            Some(mark) if store::is_mark(mark) && is_due(held.attempt()) => {
                release_dead(context, held).map(drop)
            }
            _ => Ok(()),
        },
        // An idle one stays for the next request. Any other is on its way out, or a kill left it without its lease.
        Entry::Unleased(instance) => {
            let is_here = instance.boot_id == context.boot_id;
            let is_going = instance.idle_since().is_none() && !instance.is_of_layout();
            match is_going && is_due(instance.attempt()) && is_here {
                true => release_going(context, instance).map(drop),
                false => Ok(()),
            }
        }
    };
    let ended = listing.entries.iter().map(release);
    let half_written = listing.damaged.iter().filter(|d| is_half_written(d));
    let half_written = half_written.map(|d| release_damaged(context, d, Patience::default()));
    error::all(ended.chain(half_written))
}

/// Returns whether a kill left a promise without its instance. It holds nothing.
fn is_half_written(damaged: &Damaged) -> bool {
    let lease = damaged.unfinished();
    lease.is_some_and(|lease| lease.claim().is_some())
}
