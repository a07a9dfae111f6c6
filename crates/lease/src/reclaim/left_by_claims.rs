//! Ends what claims and their containers left, for the driver that watches the ledger.

use super::claim::release_dead;
use super::gc::release_going;
use super::release::is_due;
use crate::error::{self, Result};
use crate::leases::Leases;
use crate::store::{self, Entry};

impl Leases<'_> {
    /// Ends what containers of claims left: their leases, and the instances whose last lease was a container's. It also
    /// ends instances without a lease that are on their way out. Leases without a claim are none of its business.
    ///
    /// # Errors
    /// An instance that is in use. It is quarantined, and the next call tries again.
    pub fn release_ended(&self) -> Result<()> {
        let listing = self.store.list()?;
        let release = |entry: &Entry| match entry {
            Entry::Held(held) => match &held.lease.shared_in {
                Some(mark) if store::is_mark(mark) && is_due(held.attempt()) => {
                    release_dead(self, held).map(drop)
                }
                _ => Ok(()),
            },
            // An idle one stays for the next request. Any other is on its way out, or a kill left it without its lease.
            Entry::Unleased(instance) => {
                let is_going = instance.idle_since().is_none() && !instance.is_of_layout();
                match is_going && is_due(instance.attempt()) {
                    true => release_going(self, instance).map(drop),
                    false => Ok(()),
                }
            }
        };
        error::all(listing.entries.iter().map(release))
    }
}
