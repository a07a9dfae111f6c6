//! Removes leases of an earlier boot. Their instances ended with that boot, so runmig asks the driver
//! nothing and confirms nothing. A kill half way only leaves some leases for the next collection.

use super::finding::{Finding, Outcome};
use crate::context::LeaseContext;
use crate::error::{self, Error, Result};
use crate::store::{Damaged, Lease, Ownership};
use std::path::PathBuf;

/// The number of records that one lock of the ledger covers. Other processes wait for the lock.
const BATCH: usize = 1000;

/// Removes leases of an earlier boot, and restores the `config.json` of each.
pub(super) fn strike_off(
    context: &LeaseContext<'_>,
    leases: Vec<Lease>,
    dry_run: bool,
) -> Vec<Finding> {
    let done = match dry_run {
        true => leases.iter().map(|_| Ok(())).collect(),
        false => restore_and_remove(context, &leases),
    };
    let found = |(lease, done)| Finding {
        lease,
        outcome: outcome(done, "its boot is over"),
    };
    leases.into_iter().zip(done).map(found).collect()
}

fn restore_and_remove(context: &LeaseContext<'_>, leases: &[Lease]) -> Vec<Result<()>> {
    let restored = leases
        .iter()
        .map(|l| context.restore(&l.holder.bundle, &l.id));
    let restored: Vec<Result<()>> = restored.collect();
    let files: Vec<PathBuf> = leases.iter().map(|l| context.store.file(l)).collect();
    let removed = remove_all(context, &files);
    let both = |(restored, removed)| error::all([restored, removed]);
    restored.into_iter().zip(removed).map(both).collect()
}

/// Removes unreadable records of an earlier boot. Their bundles are unknown.
pub(super) fn strike_off_damaged(
    context: &LeaseContext<'_>,
    damaged: Vec<Damaged>,
    dry_run: bool,
) -> Vec<(Damaged, Outcome)> {
    let done = match dry_run {
        true => damaged.iter().map(|_| Ok(())).collect(),
        false => {
            let files = damaged.iter().map(|d| d.file.clone());
            remove_all(context, &files.collect::<Vec<_>>())
        }
    };
    let why = "its record is damaged, and its boot is over";
    let found = |(damaged, done)| (damaged, outcome(done, why));
    damaged.into_iter().zip(done).map(found).collect()
}

pub(super) fn is_damaged_of_it(context: &LeaseContext<'_>, damaged: &Damaged) -> bool {
    let name = damaged.name.as_ref();
    name.is_some_and(|c| c.boot_id != context.boot_id && c.ownership != Ownership::Unknown)
}

/// Removes the files. Returns one result for each.
fn remove_all(context: &LeaseContext<'_>, files: &[PathBuf]) -> Vec<Result<()>> {
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
