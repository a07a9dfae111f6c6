//! Ends the leases of an earlier boot. Their instances ended with that boot, so runmig asks the driver nothing and confirms
//! nothing.

use super::finding::{Finding, Outcome};
use super::{daemon, holder};
use crate::error::Result;
use crate::leases::Leases;
use crate::model::LeaseId;
use crate::store::{Entry, Held};
use std::collections::HashSet;

/// Restores the `config.json` of each lease of an earlier boot, and removes all at once. `dry_run` only tells.
///
/// # Errors
/// The ledger cannot be read or written.
pub(crate) fn end_earlier_boot(context: &Leases<'_>, dry_run: bool) -> Result<Vec<Finding>> {
    let content = context.store.state()?;
    let leases = &content.earlier;
    let finding = |held: &Held, ended: Result<()>| Finding {
        entry: Entry::Held(held.clone()),
        outcome: match ended {
            Ok(()) => Outcome::Released("its boot is over".to_owned()),
            Err(e) => {
                tracing::warn!(lease = held.lease.id.as_str(), "{}", e.line());
                Outcome::Failed(e)
            }
        },
    };
    if dry_run {
        return Ok(leases.iter().map(|held| finding(held, Ok(()))).collect());
    }
    if !leases.is_empty() || context.store.is_of_earlier_boot()? {
        let ended = leases.iter().map(|held| {
            // Only a state directory on a disk still has the directories of their daemons.
            if held.lease.daemon().is_some() {
                daemon::remove_home(context, &held.lease.id);
            }
            finding(held, holder::after_release(context, &held.lease))
        });
        let ended: Vec<Finding> = ended.collect();
        let ledger = context.store.lock("the end of an earlier boot")?;
        let ids: HashSet<&LeaseId> = leases.iter().map(|held| &held.lease.id).collect();
        let removed = context.end(&ledger, |state, ends| {
            let of_boot = state
                .earlier
                .extract_if(.., |held| ids.contains(&held.lease.id));
            Ok(of_boot.inspect(|held| ends.lapsed(held)).count())
        })?;
        if removed > 0 {
            tracing::info!("{removed} leases of an earlier boot are removed");
        }
        return Ok(ended);
    }
    Ok(Vec::new())
}
