//! Everything that an operation on leases works with: ledger, configuration, boot. The operations are its methods, each
//! in the file where its work is.

use super::bundles::Bundles;
use crate::config::Config;
use crate::counters::Actor;
use crate::error::{Error, Result};
use crate::gpu::{Session, geometry};
use crate::model::{BootId, LeaseId, Timestamp};
use crate::observer::{Ends, Observer};
use crate::process;
use crate::store::{Held, Instance, Key, Lease, Ledger, State, Store};
use std::path::Path;

/// The leases of one state directory, and the operations on them.
pub struct Leases<'a> {
    pub(crate) config: &'a Config,
    pub(crate) store: Store,
    pub(crate) boot_id: BootId,
    pub(crate) bundles: Box<dyn Bundles>,
    pub(crate) observer: Observer,
}

impl<'a> Leases<'a> {
    /// Opens the ledger, and creates the state directory if it is missing.
    ///
    /// # Errors
    /// A state directory that cannot be made or that users other than root may write, and a missing boot id.
    pub fn open(config: &'a Config, bundles: Box<dyn Bundles>) -> Result<Self> {
        let store = Store::open(&config.state_dir, config.lock_timeout)?;
        Leases::with(config, store, bundles)
    }

    /// Opens the ledger, or returns none if there is none. For callers that only look or release.
    ///
    /// # Errors
    /// As `open`.
    pub fn existing(config: &'a Config, bundles: Box<dyn Bundles>) -> Result<Option<Self>> {
        Store::existing(&config.state_dir, config.lock_timeout)?
            .map(|store| Leases::with(config, store, bundles))
            .transpose()
    }

    /// Opens the ledger for a caller that only looks. Without a ledger it finds no lease, and makes nothing.
    ///
    /// # Errors
    /// As `open`.
    pub fn to_look(config: &'a Config, bundles: Box<dyn Bundles>) -> Result<Self> {
        let store = Store::to_look(&config.state_dir, config.lock_timeout)?;
        let mut context = Leases::with(config, store, bundles)?;
        context.observer.count_nothing();
        Ok(context)
    }

    fn with(config: &'a Config, store: Store, bundles: Box<dyn Bundles>) -> Result<Self> {
        let boot_id = process::boot_id(&config.driver.root)?;
        let observer = Observer::new(store.counter(), config.events_file());
        Ok(Leases {
            config,
            store: store.at_boot(&boot_id),
            boot_id,
            bundles,
            observer,
        })
    }

    /// Sets the actor of the releases, as the counters have it. Without it a create is the actor.
    pub fn acting_as(self, actor: Actor) -> Self {
        self.observer.act_as(actor);
        self
    }

    /// Returns the ledger.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the leases of a container: one, but for the moments in which a successor comes while the
    /// predecessor's slice could not be destroyed yet.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub fn of(&self, key: &Key) -> Result<Vec<Held>> {
        self.leases_that(|lease| lease.is_of(key))
    }

    /// Returns the leases of all claims.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub fn claims(&self) -> Result<Vec<Held>> {
        self.leases_that(|lease| lease.claim().is_some())
    }

    pub(crate) fn leases_that(&self, are_meant: impl Fn(&Lease) -> bool) -> Result<Vec<Held>> {
        let listing = self.store.list()?;
        let meant = listing.held().filter(|held| are_meant(&held.lease));
        Ok(meant.cloned().collect())
    }

    /// Puts the original `config.json` back into the bundle of a lease, on record or not.
    pub fn restore(&self, bundle: &Path, lease: &LeaseId) -> Result<()> {
        self.bundles.restore(&self.store, bundle, lease)
    }

    /// Makes a change that ends leases. Their counts belong to it, and their events are written right before it: after a kill
    /// in between, the next release writes them again, with the same ids.
    pub(crate) fn end<T>(
        &self,
        ledger: &Ledger<'_>,
        change: impl FnOnce(&mut State, &mut Ends) -> Result<T>,
    ) -> Result<T> {
        let change = |state: &mut State| {
            let mut ends = Ends::by(&self.observer);
            let changed = change(state, &mut ends)?;
            state.counters.add(&ends.counts);
            Ok((changed, ends.events))
        };
        let (changed, _) = ledger.change_telling(change, |(_, events)| {
            self.observer.write_all(std::mem::take(events));
        })?;
        Ok(changed)
    }

    /// Changes the instance of a lease on record; an error where it is there no more.
    pub(crate) fn record(&self, held: &Held, change: impl FnOnce(&mut Instance)) -> Result<Held> {
        let ledger = self.store.lock("create")?;
        let instance = ledger.update_instance(&held.instance, change)?;
        Ok(Held {
            lease: held.lease.clone(),
            instance: instance.ok_or_else(|| is_gone(held))?,
        })
    }

    /// Changes a lease on record; an error where it is there no more.
    pub(crate) fn record_lease(
        &self,
        held: &Held,
        change: impl FnOnce(&mut Lease),
    ) -> Result<Held> {
        let ledger = self.store.lock("create")?;
        let lease = ledger.update_lease(&held.lease, change)?;
        Ok(Held {
            lease: lease.ok_or_else(|| is_gone(held))?,
            instance: held.instance.clone(),
        })
    }

    /// Says whether an operation is at work on an instance. A doubt counts as work.
    pub(crate) fn is_at_work(&self, instance: &Instance) -> bool {
        let operation = instance.operation.as_ref();
        operation.is_some_and(|id| self.store.is_at_work(id))
    }

    /// Returns a session with the driver, which the first call opens.
    pub(crate) fn driver(&self) -> Session<'_> {
        session(self.config, Some(&self.boot_id)).heard_by(&self.observer)
    }
}

fn is_gone(held: &Held) -> Error {
    let holder = held.lease.holder.title();
    Error::new(format!("another process has removed the lease of {holder}"))
}

/// Returns the same for callers that only look, and may have no ledger.
pub fn driver<'a>(config: &Config) -> Session<'a> {
    session(config, process::boot_id(&config.driver.root).ok().as_ref())
}

fn session<'a>(config: &Config, boot_id: Option<&BootId>) -> Session<'a> {
    let cache = boot_id.map(|id| geometry::Cache::new(&config.state_dir, id));
    Session::new(&config.driver.library, cache)
}

/// Returns the time as records hold it.
pub(crate) fn now() -> Timestamp {
    Timestamp::seconds(std::time::SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::NoBundles;
    use crate::store::{Claim, Holder, tests};

    #[test]
    fn finds_claims_of_a_ledger_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            state_dir: dir.path().join("state"),
            ..Config::default()
        };
        let existing = || Leases::existing(&config, Box::new(NoBundles)).unwrap();
        assert!(existing().is_none() && !config.state_dir.exists());
        let held = |id: &str, holder: Option<Holder>| {
            let lease = tests::lease(id);
            Held {
                instance: tests::instance(lease.instance.as_str()).into(),
                lease: match holder {
                    Some(holder) => Lease { holder, ..lease }.into(),
                    None => lease.into(),
                },
            }
        };
        let leases = Leases::open(&config, Box::new(NoBundles)).unwrap();
        let claim = held("claim", Some(Holder::Claim(Claim::default())));
        let container = held("container", None);
        let ledger = leases.store.lock("t").unwrap();
        ledger.put_all(&[claim.clone(), container.clone()]).unwrap();
        drop(ledger);
        assert_eq!(existing().unwrap().claims().unwrap(), [claim]);

        leases.record(&container, |_| ()).unwrap();
        let ledger = leases.store.lock("t").unwrap();
        ledger
            .change(|state| Ok(state.remove_all(std::slice::from_ref(&container))))
            .unwrap();
        drop(ledger);
        let gone = "another process has removed the lease of container web (c1)";
        assert_eq!(leases.record(&container, |_| ()).unwrap_err().line(), gone);
        let error = leases.record_lease(&container, |_| ()).unwrap_err();
        assert_eq!(error.line(), gone);
    }
}
