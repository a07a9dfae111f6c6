//! Leases: the one place that joins placement, driver, ledger and bundle.
//!
//! The floors, from the top; an import points down:
//!
//! ```text
//! mod           LeaseManager: the operations that other modules call
//! allocate      a create: admit, plan, reserve, provision
//! queue         waits for room, and says why it woke
//! reclaim       release, destroy, collect
//! inventory     driver, ledger and queue at one moment
//! idle, admitted, draft, context, refusal
//! ```
//!
//! A create journals each instance before it creates it, and a release strikes a lease off only after the
//! driver confirms that the instance is gone. A kill in between leaves a record from which the next
//! process goes on.

mod admitted;
mod allocate;
mod context;
mod draft;
mod idle;
mod inventory;
mod queue;
mod reclaim;
pub mod refusal;

pub use allocate::{Answer, Fit, Source, WhatIf};
pub use context::driver;
pub use inventory::Inventory;
pub use reclaim::bundles::lock_if_any as lock_bundle_if_any;
pub use reclaim::liveness::{
    Liveness, UNSEEN_HINT, container_lives, is_made_by_others, sign_of_life, unseen,
};
pub use reclaim::lost;
pub use reclaim::{Collection, Finding, Outcome, Patience, Returned};

use crate::config::Config;
use crate::error::Result;
use crate::model::Process;
use crate::request::Request;
use crate::spec::Cgroup;
use crate::spec::bundle::{Author, Bundle};
use crate::store::{BundleLock, Damaged, Holder, Key, Lease, Store};
use context::LeaseContext;
use std::path::Path;

/// The operations on the leases of one state directory.
pub struct LeaseManager<'a>(LeaseContext<'a>);

impl<'a> LeaseManager<'a> {
    /// Creates the state directory where it is missing.
    pub fn open(config: &'a Config) -> Result<Self> {
        LeaseContext::open(config).map(LeaseManager)
    }

    /// Returns none where there is no ledger, for callers that only look or give back.
    pub fn existing(config: &'a Config) -> Result<Option<Self>> {
        Ok(LeaseContext::existing(config)?.map(LeaseManager))
    }

    /// Returns the ledger for a hook that knows its lease, and whether it was there: one that is gone is
    /// created anew.
    pub fn existing_or_new(config: &'a Config) -> Result<(Self, bool)> {
        Ok(match LeaseManager::existing(config)? {
            Some(leases) => (leases, true),
            None => (LeaseManager::open(config)?, false),
        })
    }

    /// For a create, which has locked this bundle: releases restore its `config.json` too.
    pub fn holding(mut self, bundle: &Path) -> Self {
        self.0.locked_bundle = Some(bundle.to_owned());
        self
    }

    pub fn lock_bundle(&self, bundle: &Bundle) -> Result<BundleLock> {
        reclaim::bundles::lock(&self.0.store, bundle)
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Returns the leases of a container.
    pub fn of(&self, key: &Key) -> Result<Vec<Lease>> {
        self.0.leases_of(key)
    }

    /// Allocates slices for a container; see `allocate::acquire`.
    pub fn acquire(&self, holder: Holder, request: &Request, cgroup: Cgroup) -> Result<Vec<Lease>> {
        allocate::acquire(&self.0, holder, request, cgroup)
    }

    /// Records the low-level runtime of a lease's container.
    pub fn started(&self, id: &str, runtime: Process) -> Result<Option<Lease>> {
        reclaim::started(&self.0, id, runtime)
    }

    /// Marks a lease *ready* if its container runs; see `reclaim::ready_if_started`.
    pub fn ready_if_started(&self, id: &str) -> Result<bool> {
        reclaim::ready_if_started(&self.0, id)
    }

    /// Marks a lease *ready*: its container exists.
    pub fn ready(&self, id: &str) -> Result<Option<Lease>> {
        reclaim::ready(&self.0, id)
    }

    /// Releases a lease unless `against` names a reason; see `reclaim::release_unless`.
    pub fn release_unless(
        &self,
        id: &str,
        patience: Patience,
        against: impl Fn(&Lease) -> Option<String>,
    ) -> Result<Returned> {
        reclaim::release_unless(&self.0, id, patience, against)
    }

    /// Releases the leases of a container after its delete, if it is gone.
    pub fn release_if_dead(&self, key: &Key, deleted: bool) -> Result<()> {
        reclaim::release_if_dead(&self.0, key, deleted)
    }

    /// Releases a lease whose low-level runtime has ended, unless its container lives on.
    pub fn release_if_over(&self, id: &str, patience: Patience) -> Result<Returned> {
        reclaim::release_if_over(&self.0, id, patience)
    }

    /// Returns the records that cannot be read.
    pub fn damaged(&self) -> Result<Vec<Damaged>> {
        reclaim::damaged(&self.0)
    }

    /// Releases the slice of a damaged record, for a caller that knows that its container is gone.
    pub fn release_damaged(&self, damaged: &Damaged, patience: Patience) -> Result<()> {
        reclaim::release_damaged(&self.0, damaged, patience)
    }

    /// Releases the damaged record of a lease that a hook names.
    pub fn release_damaged_of(&self, lease: &str, bundle: &Path) -> Result<()> {
        reclaim::release_damaged_of(&self.0, lease, bundle)
    }

    /// Collects every lease that is due, with patience; `dry_run` only tells.
    pub fn gc(&self, dry_run: bool) -> Result<Collection> {
        if !dry_run && let Err(e) = queue::sweep(&self.0.store) {
            tracing::warn!("{}", e.line());
        }
        reclaim::gc(&self.0, dry_run)
    }

    /// Returns the account of leases that a create leaves beside the original of its bundle.
    pub fn author(&self, leases: &[Lease]) -> Result<Author> {
        lost::author(&self.0, leases)
    }

    /// Returns whether a lease that is not on record was released by a process that had this ledger.
    pub fn has_struck_off(&self, told: &lost::Told) -> bool {
        lost::has_struck_off(&self.0, told)
    }

    /// Puts a lost lease on record again, if its instance is there and provably its own.
    pub fn recover(&self, told: &lost::Told, id: &str, container: &str) -> Result<Option<Lease>> {
        lost::recover(&self.0, told, id, container)
    }

    /// Puts the original back into the bundle of a lease that is not on record.
    pub fn restore_of_lost(&self, bundle: &Path, id: &str) -> Result<()> {
        reclaim::bundles::restore(&self.0, bundle, id)
    }
}
