//! The operations on leases that other crates call.

use crate::allocate::{self, Acquired, ClaimNews, ClaimPlace, LimitState};
use crate::apply::{self, Applied, ApplyOptions};
use crate::bundles::{Author, Bundles};
use crate::config::Config;
use crate::context::LeaseContext;
use crate::counters::{Actor, LeaseKind, Outcome};
use crate::error::{Error, Result};
use crate::layout::Configuration;
use crate::model::{Cgroup, LeaseId, Process};
use crate::observer::{self, Create};
use crate::reclaim::{self, Collection, Patience, Repair, Returned, holder, liveness, lost};
use crate::request::Request;
use crate::store::{Claim, ClaimName, Container, Held, Holder, Instance, Key, Lease, Store};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The operations on the leases of one state directory.
pub struct LeaseManager<'a>(LeaseContext<'a>);

impl<'a> LeaseManager<'a> {
    /// Opens the ledger, and creates the state directory if it is missing.
    ///
    /// # Errors
    /// A state directory that cannot be made or that users other than root may write, and a missing boot id.
    pub fn open(config: &'a Config, bundles: Box<dyn Bundles>) -> Result<Self> {
        LeaseContext::open(config, bundles).map(LeaseManager)
    }

    /// Opens the ledger, or returns none if there is none. For callers that only look or release.
    ///
    /// # Errors
    /// As `open`.
    pub fn existing(config: &'a Config, bundles: Box<dyn Bundles>) -> Result<Option<Self>> {
        Ok(LeaseContext::existing(config, bundles)?.map(LeaseManager))
    }

    /// Opens the ledger for a caller that only looks. Without a ledger it finds no lease, and makes nothing.
    ///
    /// # Errors
    /// As `open`.
    pub fn to_look(config: &'a Config, bundles: Box<dyn Bundles>) -> Result<Self> {
        LeaseContext::to_look(config, bundles).map(LeaseManager)
    }

    /// Sets the actor of the releases, as the counters have it. Without it a create is the actor.
    pub fn acting_as(self, actor: Actor) -> Self {
        self.0.observer.act_as(actor);
        self
    }

    /// Returns the ledger.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Returns the leases of a container.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub fn of(&self, key: &Key) -> Result<Vec<Held>> {
        self.0.leases_of(key)
    }

    /// Allocates slices for a container; see `allocate::acquire`.
    pub fn acquire(
        &self,
        holder: Container,
        request: &Request,
        cgroup: Cgroup,
    ) -> Result<Acquired> {
        allocate::acquire(&self.0, holder, request, cgroup)
    }

    /// Counts a create that ends with a container. `runtime`: the time of its low-level runtime.
    pub fn count_created(&self, create: &Create, runtime: Option<Duration>) {
        self.0.observer.count_created(create, runtime);
    }

    /// Records a create that ended with a container on these leases.
    pub fn created(&self, create: &Create, leases: &[Held], runtime: Option<Duration>) {
        let now = |held: &Held| {
            // Without a record, the container has ended already, or the read failed.
            let now = self.0.store.get(&held.lease.id).ok().flatten();
            now.unwrap_or_else(|| held.clone())
        };
        let leases: Vec<Held> = leases.iter().map(now).collect();
        self.0.observer.created(create, &leases, runtime);
    }

    /// Writes the counts that no change of the ledger took along, for a caller that goes on for long.
    pub fn write_counts(&self) {
        self.0.store.write_counts();
    }

    /// Counts and records a create that failed after `acquire`. `error`: none where the low-level runtime told it.
    pub fn count_failed(&self, create: &Create, outcome: Outcome, error: Option<&Error>) {
        self.0.observer.ended(create, outcome, error);
    }

    /// Counts and records a request that was refused before `acquire`. No request stands for the slice of a claim.
    pub fn count_refused(
        &self,
        request: Option<&Request>,
        container: Option<Container>,
        error: &Error,
    ) {
        let kind = request.map_or(LeaseKind::Slice, |r| observer::kind_of_wanted(&r.wanted));
        let text = request.map_or(String::new(), |r| r.wanted.written());
        let holder = container.map(Holder::Container);
        let create = self.0.observer.begin(kind, holder, &text);
        self.0
            .observer
            .ended(&create, Outcome::Refused, Some(error));
    }

    /// Puts a container on the slices of claims, before it exists; see `allocate::acquire_claimed`.
    pub fn acquire_claimed(
        &self,
        holder: &Container,
        claims: &[ClaimName],
        cgroup: &Cgroup,
        patience: Duration,
    ) -> Result<Acquired> {
        allocate::acquire_claimed(&self.0, holder, claims, cgroup, patience)
    }

    /// Promises the place of a device to a claim; see `allocate::promise`.
    pub fn promise(&self, claim: Claim, at: &ClaimPlace, hear: &dyn Fn(ClaimNews)) -> Result<Held> {
        allocate::promise(&self.0, claim, at, hear)
    }

    /// Makes the slice of a claim's device, and waits for this time for slices that are being released; see
    /// `allocate::prepare`.
    pub fn prepare(
        &self,
        claim: Claim,
        at: &ClaimPlace,
        patience: Duration,
        hear: &dyn Fn(ClaimNews),
    ) -> Result<Held> {
        allocate::prepare(&self.0, claim, at, patience, hear)
    }

    /// Releases the leases of a claim by its UID; see `reclaim::release_claim`.
    pub fn unprepare(&self, uid: &str, patience: Patience) -> Result<()> {
        reclaim::release_claim(&self.0, uid, patience)
    }

    /// Puts a container's lease on record on the slice of its claim; see `allocate::attach`.
    pub fn attach(
        &self,
        claim: &ClaimName,
        container: Container,
        init: Process,
        patience: Duration,
    ) -> Result<Lease> {
        allocate::attach(&self.0, claim, container, init, patience)
    }

    /// Removes a container's lease from the slice of its claim, without the driver; see `reclaim::detach`.
    pub fn detach(&self, claim: &ClaimName, container: &str) -> Result<()> {
        reclaim::detach(&self.0, claim, container)
    }

    /// Ends what containers of claims left; see `reclaim::release_ended`.
    pub fn release_ended(&self) -> Result<()> {
        reclaim::release_ended(&self.0)
    }

    /// Releases the lease of one device of a claim; see `reclaim::release_device`.
    pub fn release_device(&self, device: &ClaimName, patience: Patience) -> Result<()> {
        reclaim::release_device(&self.0, device, patience)
    }

    /// Returns the container or the process that uses a device of a claim; see `reclaim::user_of_device`.
    pub fn user_of_device(&self, device: &ClaimName) -> Result<Option<String>> {
        reclaim::user_of_device(&self.0, device)
    }

    /// Returns the leases of all claims.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub fn claims(&self) -> Result<Vec<Held>> {
        let listing = self.0.store.list()?;
        Ok({ listing.held() }
            .filter(|h| h.lease.claim().is_some())
            .cloned()
            .collect())
    }

    /// Returns the directory with the socket of a lease's MPS daemon, which the container gets at `/tmp/nvidia-mps`.
    /// Returns none without a daemon.
    pub fn door(&self, held: &Held) -> Option<PathBuf> {
        held.lease.daemon()?;
        Some(reclaim::home(&self.0, &held.lease.id).door())
    }

    /// Limits the memory of a container's share in the driver; see `allocate::limit_memory`.
    pub fn limit_memory(&self, lease: &LeaseId, container: &str, pid: i32) -> Result<()> {
        allocate::limit_memory(&self.0, lease, (container, pid))
    }

    /// Returns the driver's limit on the memory of a lease's container.
    pub fn limit_state(&self, held: &Held) -> Result<LimitState> {
        allocate::limit_state(&self.0, held)
    }

    /// Ends the container of a lease, which runs without its limit.
    pub fn end_unlimited(&self, lease: &Lease) -> Result<()> {
        allocate::end_unlimited(&self.0, lease)
    }

    /// Records the low-level runtime of a lease's container.
    pub fn started(&self, lease: &Lease, runtime: Process) -> Result<Option<Lease>> {
        reclaim::started(&self.0, lease, runtime)
    }

    /// Marks a lease *ready* if its container runs; see `reclaim::ready_if_started`.
    pub fn ready_if_started(&self, lease: &Lease) -> Result<bool> {
        reclaim::ready_if_started(&self.0, lease)
    }

    /// Marks a lease *ready*: its container exists.
    pub fn ready(&self, lease: &Lease) -> Result<Option<Lease>> {
        reclaim::ready(&self.0, lease)
    }

    /// Returns the first sign that a lease's operation, low-level runtime or container lives; none if the
    /// container is gone.
    pub fn sign_of_life(&self, lease: &Lease) -> Option<String> {
        holder::sign_of_life(&self.0.store, lease)
    }

    /// Returns the process that makes the container of a lease, unless it called this one.
    pub fn is_made_by_others(&self, lease: &Lease) -> Option<String> {
        liveness::is_made_by_others(&self.0.store, lease)
    }

    /// Releases a lease unless `against` names a reason; see `reclaim::release_unless`.
    pub fn release_unless(
        &self,
        held: &Held,
        patience: Patience,
        against: impl Fn(&Lease) -> Option<String>,
    ) -> Result<Returned> {
        reclaim::release_unless(&self.0, held, patience, against)
    }

    /// Releases an instance without a lease.
    pub fn release_instance(&self, instance: &Instance, patience: Patience) -> Result<Returned> {
        reclaim::release_instance_unless(&self.0, instance, patience, |_| None)
    }

    /// Releases the leases of a container after its delete, if it is gone.
    pub fn release_if_dead(&self, key: &Key, deleted: bool) -> Result<()> {
        reclaim::release_if_dead(&self.0, key, deleted)
    }

    /// Releases a lease whose low-level runtime has ended, unless its container lives on.
    pub fn release_if_over(&self, held: &Held, patience: Patience) -> Result<Returned> {
        reclaim::release_if_over(&self.0, held, patience)
    }

    /// Collects every lease that is due, with patience; `dry_run` only tells.
    pub fn gc(&self, dry_run: bool) -> Result<Collection> {
        if !dry_run && let Err(e) = self.0.store.sweep_queue() {
            tracing::warn!("{}", e.line());
        }
        reclaim::gc(&self.0, dry_run)
    }

    /// Replaces a damaged ledger; see `reclaim::repair`.
    pub fn repair(&self) -> Result<Option<Repair>> {
        reclaim::repair(&self.0)
    }

    /// Brings the GPUs to a layout; see `apply::apply`.
    pub fn apply(&self, layout: &Configuration, options: ApplyOptions) -> Result<Applied> {
        apply::apply(&self.0, layout, options)
    }

    /// Returns the account of leases that a create leaves beside the original of its bundle.
    pub fn author(&self, leases: &[Held]) -> Result<Author> {
        lost::author(&self.0, leases)
    }

    /// Returns whether a lease that is not on record was released by a process that had this ledger.
    pub fn has_struck_off(&self, account: &lost::BundleAccount) -> bool {
        lost::has_struck_off(&self.0, account)
    }

    /// Puts a lost lease on record again, if its instance is there and provably its own.
    pub fn recover(
        &self,
        account: &lost::BundleAccount,
        id: &LeaseId,
        container: &str,
    ) -> Result<Option<Held>> {
        lost::recover(&self.0, account, id, container)
    }

    /// Writes the accounts of a create's leases, for a repair.
    pub fn put_accounts(&self, leases: &[Held]) -> Result<()> {
        leases
            .iter()
            .try_for_each(|held| self.0.store.put_account(held))
    }

    /// Ends the instance of an ended container while the ledger is damaged; see `lost::end_unrecorded`.
    pub fn end_unrecorded(
        &self,
        account: &lost::BundleAccount,
        id: &LeaseId,
        container: &str,
        bundle: &Path,
    ) -> Result<bool> {
        lost::end_unrecorded(&self.0, account, id, container, bundle)
    }

    /// Puts the original back into the bundle of a lease that is not on record.
    pub fn restore_of_lost(&self, bundle: &Path, id: &LeaseId) -> Result<()> {
        self.0.restore(bundle, id)
    }
}
