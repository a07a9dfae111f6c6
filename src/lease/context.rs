//! Everything that an operation on leases works with: ledger, configuration, boot.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::nvml;
use crate::process;
use crate::store::{Key, Lease, Store};
use std::path::PathBuf;

pub struct LeaseContext<'a> {
    pub config: &'a Config,
    pub store: Store,
    pub boot_id: String,
    /// The bundle that this process has locked.
    pub locked_bundle: Option<PathBuf>,
}

impl<'a> LeaseContext<'a> {
    /// Creates the state directory where it is missing.
    pub fn open(config: &'a Config) -> Result<Self> {
        let store = Store::open(&config.state_dir, config.lock_timeout)?;
        LeaseContext::with(config, store)
    }

    /// Returns none where there is no ledger, for callers that only look or give back.
    pub fn existing(config: &'a Config) -> Result<Option<Self>> {
        Store::existing(&config.state_dir, config.lock_timeout)?
            .map(|store| LeaseContext::with(config, store))
            .transpose()
    }

    fn with(config: &'a Config, store: Store) -> Result<Self> {
        let boot_id = process::boot_id(&config.driver.root)?;
        Ok(LeaseContext {
            config,
            store,
            boot_id,
            locked_bundle: None,
        })
    }

    /// Returns the leases of a container: one, but for the moments in which a successor comes while the
    /// predecessor's slice could not be destroyed yet.
    pub fn leases_of(&self, key: &Key) -> Result<Vec<Lease>> {
        let (mut leases, _) = self.store.list()?;
        leases.retain(|l| l.holder.key == *key);
        Ok(leases)
    }

    /// Changes a lease on record; an error where it is there no more.
    pub fn record(&self, lease: &Lease, change: impl FnOnce(&mut Lease)) -> Result<Lease> {
        let ledger = self.store.lock("create")?;
        ledger.update(&lease.id, change)?.ok_or_else(|| {
            Error::new(format!(
                "the lease of container {} was taken away",
                lease.holder.key.id
            ))
        })
    }

    /// Opens a session with the driver.
    pub fn driver(&self) -> Result<nvml::Session> {
        Ok(nvml::open(&self.config.driver.library)?)
    }
}

/// Returns the time as records hold it.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}
