//! Reads the ledger. Its file is always of one moment, so a reader needs no lock; a decision does.

use super::Store;
use super::file::{Content, Header, Look, State};
use super::holder::Key;
use super::instance::Instance;
use super::lease::{Entry, Held, Lease};
use crate::counters::Counts;
use crate::error::{Error, Result};
use crate::model::{InstanceId, LeaseId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The content of the ledger.
#[derive(Debug, Default)]
pub struct Listing {
    /// The leases with their instances, in order of creation, then the instances without a lease.
    pub entries: Vec<Entry>,
    /// The leases of earlier boots whose bundles are not restored yet.
    pub earlier: Vec<Held>,
    /// The counters.
    pub counters: Counts,
}

impl Listing {
    /// Returns the leases with their instances.
    pub fn held(&self) -> impl Iterator<Item = &Held> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Held(held) => Some(held),
            Entry::Unleased(_) => None,
        })
    }

    fn of(state: &State) -> Listing {
        let mut held = state.all_held();
        held.sort_by(|a, b| {
            let (a, b) = (&a.lease, &b.lease);
            (&a.created, &a.id).cmp(&(&b.created, &b.id))
        });
        let leased: BTreeSet<&InstanceId> = state.leases.iter().map(|l| &l.instance).collect();
        let without = { state.instances.iter() }.filter(|i| !leased.contains(&i.id));
        let mut unleased: Vec<Instance> = without.cloned().collect();
        unleased.sort_by(|a, b| (&a.created, &a.id).cmp(&(&b.created, &b.id)));
        let held = held.into_iter().map(Entry::Held);
        Listing {
            earlier: state.earlier.clone(),
            entries: held
                .chain(unleased.into_iter().map(Entry::Unleased))
                .collect(),
            counters: state.counters.clone(),
        }
    }
}

impl State {
    /// Returns all leases with their instances.
    pub(super) fn all_held(&self) -> Vec<Held> {
        let instances = self.instances.iter().map(|i| (&i.id, i));
        let instances: HashMap<&InstanceId, &Instance> = instances.collect();
        let held = |lease: &Lease| {
            Some(Held {
                lease: lease.clone(),
                instance: Instance::clone(instances.get(&lease.instance)?),
            })
        };
        self.leases.iter().filter_map(held).collect()
    }

    /// Returns a lease with its instance.
    pub(crate) fn held(&self, lease: &Lease) -> Option<Held> {
        let instance = self.instance(&lease.instance)?.clone();
        Some(Held {
            lease: lease.clone(),
            instance,
        })
    }
}

impl Store {
    /// Returns whether a container may have a lease. It searches the file for the container's key.
    pub fn has(&self, key: &Key) -> bool {
        // A path that is no JSON is in no ledger.
        let text = serde_json::to_string(key).unwrap_or_default();
        let text = text.trim_start_matches('{').trim_end_matches('}');
        !text.is_empty() && self.file.may_contain(text)
    }

    /// Returns the whole ledger.
    ///
    /// # Errors
    /// The ledger cannot be read, or is damaged.
    pub fn list(&self) -> Result<Listing> {
        Ok(Listing::of(&*self.state()?))
    }

    /// Returns why the ledger is damaged, if it is.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn damage(&self) -> Result<Option<Error>> {
        match self.file.look()? {
            Look::Damaged(why) => Ok(Some(why)),
            Look::Whole(_) | Look::None => Ok(None),
        }
    }

    /// Returns whether the file was written last in an earlier boot.
    pub(crate) fn is_of_earlier_boot(&self) -> Result<bool> {
        Ok(self.file.is_of_earlier_boot(&*self.state()?))
    }

    /// Returns all records of one moment.
    pub(crate) fn state(&self) -> Result<Arc<Content>> {
        self.file.content()
    }

    /// Returns the lease with this id, or none if it is not on record.
    ///
    /// # Errors
    /// The ledger cannot be read, or is damaged.
    pub fn get(&self, id: &LeaseId) -> Result<Option<Held>> {
        let state = self.state()?;
        Ok(state.lease(id).and_then(|lease| state.held(lease)))
    }

    /// Returns a lease as it is now, or none if it is not on record.
    pub(crate) fn lease_now(&self, lease: &Lease) -> Result<Option<Lease>> {
        Ok(self.state()?.lease(&lease.id).cloned())
    }

    /// Returns an instance as it is now, or none if it is not on record.
    pub(crate) fn instance_now(&self, instance: &Instance) -> Result<Option<Instance>> {
        Ok(self.state()?.instance(&instance.id).cloned())
    }

    /// Returns the header, and reads no more than that. None where it cannot be read.
    pub(crate) fn header(&self) -> Option<Header> {
        self.file.header()
    }
}
