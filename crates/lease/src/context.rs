//! Everything that an operation on leases works with: ledger, configuration, boot.

use super::bundles::Bundles;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::{Session, geometry};
use crate::model::{BootId, LeaseId, Timestamp};
use crate::observer::Observer;
use crate::process;
use crate::store::{Held, Instance, Key, Lease, Store};
use std::path::Path;

pub(crate) struct LeaseContext<'a> {
    pub config: &'a Config,
    pub store: Store,
    pub boot_id: BootId,
    pub bundles: Box<dyn Bundles>,
    pub observer: Observer,
}

impl<'a> LeaseContext<'a> {
    /// Creates the state directory where it is missing.
    pub(crate) fn open(config: &'a Config, bundles: Box<dyn Bundles>) -> Result<Self> {
        let store = Store::open(&config.state_dir, config.lock_timeout)?;
        LeaseContext::with(config, store, bundles)
    }

    /// Returns none where there is no ledger, for callers that only look or release.
    pub(crate) fn existing(config: &'a Config, bundles: Box<dyn Bundles>) -> Result<Option<Self>> {
        Store::existing(&config.state_dir, config.lock_timeout)?
            .map(|store| LeaseContext::with(config, store, bundles))
            .transpose()
    }

    /// For callers that only look: without a ledger, they find an empty one.
    pub(crate) fn to_look(config: &'a Config, bundles: Box<dyn Bundles>) -> Result<Self> {
        let store = Store::to_look(&config.state_dir, config.lock_timeout)?;
        let mut context = LeaseContext::with(config, store, bundles)?;
        context.observer.count_nothing();
        Ok(context)
    }

    fn with(config: &'a Config, store: Store, bundles: Box<dyn Bundles>) -> Result<Self> {
        let boot_id = process::boot_id(&config.driver.root)?;
        let observer = Observer::new(store.counter(), config.events_file());
        Ok(LeaseContext {
            config,
            store: store.at_boot(&boot_id),
            boot_id,
            bundles,
            observer,
        })
    }

    /// Returns the leases of a container: one, but for the moments in which a successor comes while the
    /// predecessor's slice could not be destroyed yet.
    pub(crate) fn leases_of(&self, key: &Key) -> Result<Vec<Held>> {
        let listing = self.store.list()?;
        let its = listing.held().filter(|h| h.lease.is_of(key));
        Ok(its.cloned().collect())
    }

    /// Puts the original `config.json` back into the bundle of a lease.
    pub(crate) fn restore(&self, bundle: &Path, lease: &LeaseId) -> Result<()> {
        self.bundles.restore(&self.store, bundle, lease)
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
