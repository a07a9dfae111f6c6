//! Removes leases of an earlier boot. Their instances ended with that boot, so runmig asks the driver
//! nothing and confirms nothing.

use super::finding::{Finding, Outcome};
use super::{daemon, holder};
use crate::context::LeaseContext;
use crate::error::{self, Error, Result};
use crate::store::Entry;
use std::collections::HashSet;

/// Removes leases and instances of an earlier boot, and restores the `config.json` of each lease.
pub(super) fn strike_off(
    context: &LeaseContext<'_>,
    entries: Vec<Entry>,
    dry_run: bool,
) -> Vec<Finding> {
    let done = match dry_run {
        true => entries.iter().map(|_| Done::default()).collect(),
        false => restore_and_remove(context, &entries),
    };
    for (entry, done) in entries.iter().zip(&done) {
        if done.removed {
            context.observer.lapsed(entry);
        }
    }
    let found = |(entry, Done { done, .. })| Finding {
        entry,
        outcome: outcome(done, "its boot is over"),
    };
    entries.into_iter().zip(done).map(found).collect()
}

/// The end of a line of the ledger.
struct Done {
    done: Result<()>,
    /// Whether this process removed its lease, or its instance without a lease.
    removed: bool,
}

impl Default for Done {
    fn default() -> Done {
        Done {
            done: Ok(()),
            removed: false,
        }
    }
}

fn restore_and_remove(context: &LeaseContext<'_>, entries: &[Entry]) -> Vec<Done> {
    let restored = entries.iter().map(|entry| match entry.lease() {
        Some(lease) => holder::after_release(context, lease),
        None => Ok(()),
    });
    let restored: Vec<Result<()>> = restored.collect();
    // Only a state directory on a disk still has the directories of their daemons.
    let leases = entries.iter().filter_map(Entry::lease);
    for lease in leases.filter(|lease| lease.daemon().is_some()) {
        daemon::remove_home(context, &lease.id);
    }
    let remove = || match entries {
        [] => Ok(HashSet::new()),
        entries => context
            .store
            .lock("gc of an earlier boot")?
            .remove_all(entries),
    };
    match remove() {
        Ok(removed) => {
            if !removed.is_empty() {
                tracing::info!(
                    "{} records of an earlier boot are struck off",
                    removed.len()
                );
            }
            let both = |(done, entry): (_, &Entry)| Done {
                done,
                removed: removed.contains(entry.id()),
            };
            restored.into_iter().zip(entries).map(both).collect()
        }
        // All of them have the same error.
        Err(e) => restored
            .into_iter()
            .map(|restored| Done {
                done: error::all([restored, Err(Error::new(e.line()))]),
                removed: false,
            })
            .collect(),
    }
}

fn outcome(done: Result<()>, why: &str) -> Outcome {
    match done {
        Ok(()) => Outcome::Released(why.to_owned()),
        Err(e) => Outcome::Failed(e),
    }
}
