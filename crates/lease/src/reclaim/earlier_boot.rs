//! Removes leases of an earlier boot. Their instances ended with that boot, so runmig asks the driver
//! nothing and confirms nothing. A kill half way only leaves some leases for the next collection.

use super::finding::{Finding, Outcome};
use super::{daemon, holder};
use crate::context::LeaseContext;
use crate::error::{self, Error, Result};
use crate::store::{Damaged, Entry};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// The number of records that one lock of the ledger covers. Other processes wait for the lock.
const BATCH: usize = 1000;

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
    let store = &context.store;
    let records = entries.iter().map(|entry| Records {
        lease: entry.lease().map(|l| store.lease_file(l)),
        instance: Some(store.instance_file(entry.instance())),
    });
    let removed = remove_records(context, &records.collect::<Vec<_>>());
    let both = |(restored, Done { done, removed })| Done {
        done: error::all([restored, done]),
        removed,
    };
    restored.into_iter().zip(removed).map(both).collect()
}

/// The files of a line of the ledger.
struct Records {
    lease: Option<PathBuf>,
    instance: Option<PathBuf>,
}

/// Removes the leases, then the instances: a kill in between leaves instances without a lease for the next
/// collection. Returns one result for each line.
fn remove_records(context: &LeaseContext<'_>, records: &[Records]) -> Vec<Done> {
    let leases = records.iter().filter_map(|r| r.lease.clone());
    // Leases of one instance share its record.
    let mut seen = HashSet::new();
    let instances = records.iter().filter_map(|r| r.instance.as_ref());
    let instances = instances.filter(|file| seen.insert(file.as_os_str()));
    let files: Vec<PathBuf> = leases.chain(instances.cloned()).collect();
    let removed = remove_all(context, &files);
    let results: HashMap<&PathBuf, &Result<bool>> = files.iter().zip(&removed).collect();
    let of = |file: &Option<PathBuf>| match file.as_ref().and_then(|file| results.get(file)) {
        Some(Ok(removed)) => Ok(*removed),
        Some(Err(e)) => Err(Error::new(e.line())),
        None => Ok(false),
    };
    let line = |r: &Records| {
        let (lease, instance) = (of(&r.lease), of(&r.instance));
        let first = if r.lease.is_some() { &lease } else { &instance };
        Done {
            removed: matches!(first, Ok(true)),
            done: error::all([lease.map(drop), instance.map(drop)]),
        }
    };
    records.iter().map(line).collect()
}

/// Removes unreadable records of an earlier boot. Their bundles are unknown.
pub(super) fn strike_off_damaged(
    context: &LeaseContext<'_>,
    damaged: Vec<Damaged>,
    dry_run: bool,
) -> Vec<(Damaged, Outcome)> {
    let done = match dry_run {
        true => damaged.iter().map(|_| Done::default()).collect(),
        false => {
            for lease in damaged.iter().filter_map(Damaged::share) {
                daemon::remove_home(context, &lease.lease);
            }
            let records = damaged.iter().map(|d| Records {
                lease: context.store.lease_file_of(d),
                instance: context.store.instance_file_of(d),
            });
            let done = remove_records(context, &records.collect::<Vec<_>>());
            for (damaged, done) in damaged.iter().zip(&done) {
                if done.removed {
                    context.observer.damaged(damaged);
                }
            }
            done
        }
    };
    let why = "its record is damaged, and its boot is over";
    let found = |(damaged, Done { done, .. })| (damaged, outcome(done, why));
    damaged.into_iter().zip(done).map(found).collect()
}

pub(super) fn is_damaged_of_it(context: &LeaseContext<'_>, damaged: &Damaged) -> bool {
    damaged.boot_id().is_some_and(|b| *b != context.boot_id)
}

/// Removes the files. Returns for each whether it was there.
fn remove_all(context: &LeaseContext<'_>, files: &[PathBuf]) -> Vec<Result<bool>> {
    let mut results = Vec::with_capacity(files.len());
    for batch in files.chunks(BATCH) {
        let ledger = context.store.lock("gc of an earlier boot");
        let removed = ledger.and_then(|ledger| ledger.remove_all(batch));
        match removed {
            Ok(removed) => results.extend(removed),
            // All files of the batch have the same error.
            Err(e) => results.extend(batch.iter().map(|_| Err(Error::new(e.line())))),
        }
    }
    let struck_off = results.iter().filter(|r| r.is_ok()).count();
    if struck_off > 0 {
        tracing::info!("{struck_off} leases of an earlier boot are struck off");
    }
    results
}

fn outcome(done: Result<()>, why: &str) -> Outcome {
    match done {
        Ok(()) => Outcome::Released(why.to_owned()),
        Err(e) => Outcome::Failed(e),
    }
}
