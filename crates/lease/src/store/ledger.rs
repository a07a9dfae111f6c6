//! Reads and writes the ledger. A change is one transaction: after an error the ledger is as before. The file is always of one
//! moment, so a reader needs no lock; a decision does.

use super::Store;
use super::file::{self, Content, Header, Look, State};
use super::holder::Key;
use super::instance::Instance;
use super::lease::{Entry, Held, Lease};
use super::lock::Lock;
use crate::counters::Counts;
use crate::error::{Context, Error, Result};
use crate::model::{InstanceId, LeaseId};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// The longest time for which one process may keep the lock from counts.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The right to write leases.
pub struct Ledger<'a> {
    store: &'a Store,
    lock: Lock,
}

impl Store {
    /// Locks the ledger for writing. The error of a waiter that times out shows `why`.
    ///
    /// # Errors
    /// One holder keeps the lock for longer than `lock_timeout`, or the lock file cannot be used.
    pub fn lock(&self, why: &str) -> Result<Ledger<'_>> {
        self.lock_within(self.lock_timeout, why)
    }

    fn lock_within(&self, timeout: Duration, why: &str) -> Result<Ledger<'_>> {
        let lock = Lock::take(&self.dir.join(file::LOCK), Some(timeout), why);
        let lock = lock.context(|| "lock the ledger")?;
        Ok(Ledger { store: self, lock })
    }

    /// Writes the counts that no change took along. If the ledger cannot be written, they are lost.
    pub fn write_counts(&self) {
        let counts = std::mem::take(&mut *self.counts());
        if counts.is_empty() {
            return;
        }
        let timeout = self.lock_timeout.min(LONGEST_WAIT);
        let ledger = self.lock_within(timeout, "counts");
        let add = |state: &mut State| {
            state.counters.add(&counts);
            Ok(())
        };
        if let Err(e) = ledger.and_then(|ledger| ledger.change(add)) {
            tracing::warn!("nothing is counted: {}", e.line());
        }
    }

    /// Returns the counts that are not in the ledger yet.
    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no holder panics")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.write_counts();
    }
}

impl Ledger<'_> {
    /// Reads the ledger, changes it, and replaces it. The only way to write. A change takes along what this process has counted.
    ///
    /// # Errors
    /// Those of `change`; the ledger cannot be read or written, or is damaged.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        self.change_telling(change, |_| ())
    }

    /// The same, and calls `tell` right before the file is replaced, if anything changes. If there is no room for the
    /// change, `tell` is not called. After a kill in between, the next process makes the change again and tells it again.
    pub(crate) fn change_telling<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T>,
        tell: impl FnOnce(&mut T),
    ) -> Result<T> {
        let file = &self.store.file;
        let before = file.content()?;
        let mut state = before.state.clone();
        let mut changed = change(&mut state)?;
        if state != before.state || file.is_of_earlier_boot(&before) {
            state.counters.add(&self.store.counts());
            state.check().context(|| "change the ledger")?;
            file.write(&self.lock, &before, state, || tell(&mut changed))?;
            *self.store.counts() = Counts::default();
        }
        Ok(changed)
    }

    /// Writes a lease.
    pub fn put_lease(&self, lease: Arc<Lease>) -> Result<()> {
        let what = format!("record the lease of {}", lease.holder.title());
        self.change(|state| state.put_lease(lease)).context(|| what)
    }

    /// Changes a lease. Returns it as it is then, or none if it is not on record.
    pub fn update_lease(
        &self,
        lease: &Lease,
        change: impl FnOnce(&mut Lease),
    ) -> Result<Option<Arc<Lease>>> {
        let what = || format!("record the lease of {}", lease.holder.title());
        self.change(|state| state.update_lease(&lease.id, change))
            .context(what)
    }

    /// Changes an instance. Returns it as it is then, or none if it is not on record.
    pub fn update_instance(
        &self,
        instance: &Instance,
        change: impl FnOnce(&mut Instance),
    ) -> Result<Option<Arc<Instance>>> {
        let what = || format!("record instance {}", instance.id);
        self.change(|state| state.update_instance(&instance.id, change))
            .context(what)
    }

    /// Writes a lease and its instance.
    pub fn put_new(&self, held: &Held) -> Result<()> {
        let what = || format!("record the lease of {}", held.lease.holder.title());
        self.put_all(std::slice::from_ref(held)).context(what)
    }

    /// Writes leases and their instances.
    pub fn put_all(&self, held: &[Held]) -> Result<()> {
        self.change(|state| {
            held.iter().try_for_each(|held| {
                state.put_lease(held.lease.clone())?;
                state.put_instance(held.instance.clone())
            })
        })
    }

    /// Replaces a damaged ledger by its latest whole generation, as `complete` completes it. `complete` also gets what is
    /// wrong with the ledger. Returns none if nothing is.
    ///
    /// # Errors
    /// Those of `complete`; the ledger cannot be read or written.
    pub(crate) fn replace_damaged<T>(
        &self,
        complete: impl FnOnce(&mut State, Error) -> Result<T>,
    ) -> Result<Option<T>> {
        let file = &self.store.file;
        let Look::Damaged(why) = file.look()? else {
            return Ok(None);
        };
        let before = file.latest_whole();
        let mut state = { before.as_ref() }.map_or_else(State::default, |its| its.state.clone());
        let done = complete(&mut state, why)?;
        state.check().context(|| "repair the ledger")?;
        file.replace(&self.lock, before.as_deref(), state)?;
        Ok(Some(done))
    }
}

impl State {
    /// Removes leases, and the instances on which no other lease is. Returns the leases that were there.
    pub(crate) fn remove_all(&mut self, held: &[Held]) -> HashSet<LeaseId> {
        let ids: HashSet<&LeaseId> = held.iter().map(|held| &held.lease.id).collect();
        let gone = self.leases.extract_if(.., |lease| ids.contains(&lease.id));
        let gone = gone.map(|lease| lease.id.clone()).collect();
        let instances: HashSet<&InstanceId> = held.iter().map(|held| &held.instance.id).collect();
        let stay: HashSet<&InstanceId> = self.leases.iter().map(|l| &l.instance).collect();
        self.instances
            .retain(|i| !instances.contains(&i.id) || stay.contains(&i.id));
        gone
    }

    /// Returns all leases with their instances, in order of creation.
    pub(crate) fn all_held(&self) -> impl Iterator<Item = Held> {
        let instances = self.instances.iter().map(|i| (&i.id, i));
        let instances: HashMap<&InstanceId, &Arc<Instance>> = instances.collect();
        let mut leases = self.leases.clone();
        leases.sort_by(|a, b| a.created.cmp(&b.created));
        leases.into_iter().filter_map(move |lease| {
            let instance = Arc::clone(instances.get(&lease.instance)?);
            Some(Held { lease, instance })
        })
    }

    /// Returns the lease of this id, with its instance.
    pub(crate) fn held(&self, id: &LeaseId) -> Option<Held> {
        let lease = self.lease(id)?;
        Some(Held {
            instance: Arc::clone(self.instance(&lease.instance)?),
            lease: Arc::clone(lease),
        })
    }
}

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
        let leased: HashSet<&InstanceId> = state.leases.iter().map(|l| &l.instance).collect();
        let without = { state.instances.iter() }.filter(|i| !leased.contains(&i.id));
        let mut unleased: Vec<Arc<Instance>> = without.cloned().collect();
        unleased.sort_by(|a, b| a.created.cmp(&b.created));
        let unleased = unleased.into_iter().map(Entry::Unleased);
        Listing {
            earlier: state.earlier.clone(),
            entries: state.all_held().map(Entry::Held).chain(unleased).collect(),
            counters: state.counters.clone(),
        }
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
        Ok(state.held(id))
    }

    /// Returns a lease as it is now, or none if it is not on record.
    pub(crate) fn lease_now(&self, lease: &Lease) -> Result<Option<Arc<Lease>>> {
        Ok(self.state()?.lease(&lease.id).cloned())
    }

    /// Returns an instance as it is now, or none if it is not on record.
    pub(crate) fn instance_now(&self, instance: &Instance) -> Result<Option<Arc<Instance>>> {
        Ok(self.state()?.instance(&instance.id).cloned())
    }

    /// Returns the header, and reads no more than that. None where it cannot be read.
    pub(crate) fn header(&self) -> Option<Header> {
        self.file.header()
    }
}
