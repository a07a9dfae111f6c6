//! Reads, locks and restores the bundles of leases. A bundle holds an account of its leases, and the original
//! `config.json`.

use crate::spec::bundle::{self, Bundle};
use runmig_lease::BundleAccount;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::model::LeaseId;
use runmig_lease::store::{BundleId, ByteLock, Store};
use runmig_lease::{Bundles, Leases};
use std::path::{Path, PathBuf};

/// The bundles of this machine.
#[derive(Default)]
struct OciBundles {
    /// The bundle that this process has locked.
    locked: Option<PathBuf>,
}

impl Bundles for OciBundles {
    /// Restores the bundle, which an engine may remove before or after. If another create is at work on the
    /// same bundle, it makes its own edit of the file that it finds.
    fn restore(&self, store: &Store, path: &Path, lease: &LeaseId) -> Result<()> {
        if !Bundle::answers(path) {
            let bundle = printable(&path.to_string_lossy());
            tracing::warn!(
                lease = lease.as_str(),
                "bundle {bundle} is left as it is: its file system does not answer"
            );
            return Ok(());
        }
        if bundle::is_removed(path) {
            return Ok(());
        }
        let bundle = Bundle::open(path)?;
        if self.locked.as_deref() == Some(path) {
            return bundle.restore(lease);
        }
        match try_lock(store, &bundle)? {
            Some(_lock) => bundle.restore(lease),
            None => Ok(()),
        }
    }

    fn is_gone(&self, bundle: &Path) -> bool {
        bundle::is_gone(bundle)
    }
}

/// Opens the leases for a create, and locks its bundle. Releases through these leases restore the bundle's
/// `config.json` too.
pub fn open_for<'a>(
    config: &'a Config,
    bundle: &Bundle,
    path: &Path,
) -> Result<(Leases<'a>, ByteLock)> {
    let locked = Some(path.to_owned());
    let leases = Leases::open(config, Box::new(OciBundles { locked }))?;
    let lock = lock(leases.store(), bundle)?;
    Ok((leases, lock))
}

/// Returns `None` if there is no ledger, for callers that only read or release.
///
/// `actor`: the actor of its releases.
pub fn existing(config: &Config, actor: Actor) -> Result<Option<Leases<'_>>> {
    let leases = Leases::existing(config, Box::<OciBundles>::default())?;
    Ok(leases.map(|leases| leases.acting_as(actor)))
}

/// Returns the leases for a hook that knows its lease, and whether the ledger existed. It creates a missing
/// ledger anew.
pub fn existing_or_new(config: &Config, actor: Actor) -> Result<(Leases<'_>, bool)> {
    Ok(match existing(config, actor)? {
        Some(leases) => (leases, true),
        None => {
            let leases = Leases::open(config, Box::<OciBundles>::default())?;
            (leases.acting_as(actor), false)
        }
    })
}

/// Returns the leases for a caller that only looks. A missing ledger counts as an empty one, and stays missing.
pub fn to_look(config: &Config) -> Result<Leases<'_>> {
    Leases::to_look(config, Box::<OciBundles>::default())
}

/// Locks a bundle for a create, until its low-level runtime has read `config.json`. Otherwise two containers
/// of one bundle would start with the same slice.
fn lock(store: &Store, bundle: &Bundle) -> Result<ByteLock> {
    try_lock(store, bundle)?.ok_or_else(|| {
        Error::new(format!(
            "bundle {} is in use by another create",
            bundle.path().display()
        ))
        .hint("let it end, or use another bundle")
    })
}

/// Locks a bundle for a create that no longer asks for a slice. Returns `None` if there is no ledger: then no
/// other create is at work.
pub fn lock_if_any(config: &Config, bundle: &Bundle) -> Result<Option<ByteLock>> {
    let store = Store::existing(&config.state_dir, config.lock_timeout)?;
    store.map(|store| lock(&store, bundle)).transpose()
}

fn try_lock(store: &Store, bundle: &Bundle) -> Result<Option<ByteLock>> {
    let (dev, ino) = bundle.id()?;
    store.try_lock_bundle(BundleId { dev, ino })
}

/// Reads a bundle's account of the leases that its hook names. The caller reads it before it releases the
/// first lease, which removes the account.
pub fn account_of(bundle: &Path, first: &LeaseId) -> BundleAccount {
    let bundle = Bundle::open(bundle).ok();
    let author = bundle.as_ref().and_then(|b| b.author().ok().flatten());
    BundleAccount {
        author: author.filter(|a| a.lease == *first),
        uuids: bundle.map_or(Vec::new(), |b| b.granted_to(first)),
    }
}

/// Puts the original back without a ledger, and so without a lock. Another create of the same bundle would
/// have put its own leases there.
pub fn restore_without_ledger(bundle: &Path, lease: &LeaseId) -> Result<()> {
    match bundle::is_removed(bundle) {
        false => Bundle::open(bundle)?.restore(lease),
        true => Ok(()),
    }
}
