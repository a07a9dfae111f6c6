//! Leases: the one place that joins placement, driver, ledger and bundle.
//!
//! `acquire` puts an intent on record, then makes what it says; `release` destroys and only then
//! strikes it off; `gc` finds the leases whose container is gone (`alive`). Whoever is killed in
//! between leaves a record from which the next one goes on.

mod acquire;
mod adopt;
mod ahead;
mod alive;
mod choose;
mod damaged;
mod earlier;
mod gc;
mod idle;
pub mod lost;
mod make;
mod occupied;
mod outlook;
mod queue;
mod ready;
mod release;
mod reuse;
mod rules;
mod share;
mod view;
mod watch;
mod why;
mod world;

pub use alive::{Liveness, UNSEEN_HINT, container_lives, is_made_by_others, sign_of_life, unseen};
pub use gc::{Collection, Finding, Outcome};
pub use outlook::{Answer, Fit, Outlook, Source};
pub use release::{Patience, Returned};
pub use world::World;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::nvml;
use crate::process;
use crate::spec::bundle::Bundle;
use crate::store::{BundleId, BundleLock, Key, Lease, Store};
use std::path::{Path, PathBuf};

pub struct Leases<'a> {
    config: &'a Config,
    store: Store,
    boot_id: String,
    /// The bundle whose lock this process has.
    locked_bundle: Option<PathBuf>,
}

impl<'a> Leases<'a> {
    /// Makes the state directory where it is missing.
    pub fn open(config: &'a Config) -> Result<Self> {
        let store = Store::open(&config.state_dir, config.lock_timeout)?;
        Leases::with(config, store)
    }

    /// For those who only look or give back: none where there is no ledger.
    pub fn existing(config: &'a Config) -> Result<Option<Self>> {
        Store::existing(&config.state_dir, config.lock_timeout)?
            .map(|store| Leases::with(config, store))
            .transpose()
    }

    fn with(config: &'a Config, store: Store) -> Result<Self> {
        let boot_id = process::boot_id(&config.driver.root)?;
        Ok(Leases {
            config,
            store,
            boot_id,
            locked_bundle: None,
        })
    }

    /// For a create, which has locked its bundle: what lies in that is put right in its name too.
    pub fn holding(mut self, bundle: &Path) -> Self {
        self.locked_bundle = Some(bundle.to_owned());
        self
    }

    /// Held by a create until its low-level runtime has read config.json: two containers of one bundle
    /// would else start with the same slice.
    pub fn lock_bundle(&self, bundle: &Bundle) -> Result<BundleLock> {
        lock_bundle(&self.store, bundle)
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The leases of a container: one, but for the moments in which a successor comes while the
    /// predecessor's slice could not be destroyed yet.
    pub fn of(&self, key: &Key) -> Result<Vec<Lease>> {
        let (mut leases, _) = self.store.list()?;
        leases.retain(|l| l.holder.key == *key);
        Ok(leases)
    }

    fn driver(&self) -> Result<nvml::Session> {
        Ok(nvml::open(&self.config.driver.library)?)
    }
}

/// For a create that asks for nothing any more, and may have no ledger: then nobody else is at work.
pub fn lock_bundle_if_any(config: &Config, bundle: &Bundle) -> Result<Option<BundleLock>> {
    let store = Store::existing(&config.state_dir, config.lock_timeout)?;
    store.map(|store| lock_bundle(&store, bundle)).transpose()
}

fn lock_bundle(store: &Store, bundle: &Bundle) -> Result<BundleLock> {
    try_lock_bundle(store, bundle)?.ok_or_else(|| {
        Error::new(format!(
            "bundle {} is in use by another create",
            bundle.path().display()
        ))
        .hint("let it end, or use another bundle")
    })
}

fn try_lock_bundle(store: &Store, bundle: &Bundle) -> Result<Option<BundleLock>> {
    let (dev, ino) = bundle.id()?;
    store.try_lock_bundle(BundleId { dev, ino })
}

/// Now, as records hold it.
fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}
