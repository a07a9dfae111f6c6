//! The bundles of leases: the leases' account in them, their locks, and the original `config.json` that goes
//! back into them.

use crate::spec::bundle::{self, Bundle};
use runmig_lease::Told;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::store::{BundleId, BundleLock, Store};
use runmig_lease::{Bundles, LeaseManager};
use std::path::{Path, PathBuf};

/// The bundles of this machine.
#[derive(Default)]
struct OciBundles {
    /// The bundle that this process has locked.
    locked: Option<PathBuf>,
}

impl Bundles for OciBundles {
    /// An engine may remove the bundle before or after. Another create of the same bundle that is at work
    /// makes its own edit of what it finds there.
    fn restore(&self, store: &Store, path: &Path, lease: &str) -> Result<()> {
        if !Bundle::answers(path) {
            let bundle = printable(&path.to_string_lossy());
            tracing::warn!(
                lease,
                "bundle {bundle} is left as it is: its file system does not answer"
            );
            return Ok(());
        }
        if bundle::is_removed(path) {
            return Ok(());
        }
        let bundle = Bundle::open(path)?;
        let is_ours = self.locked.as_deref() == Some(path);
        let lock = match is_ours {
            true => None,
            false => try_lock(store, &bundle)?,
        };
        if !is_ours && lock.is_none() {
            return Ok(());
        }
        bundle.restore(lease).map(drop)
    }

    fn is_gone(&self, bundle: &Path) -> bool {
        bundle::is_gone(bundle)
    }
}

/// Opens the leases for a create that locks this bundle: releases restore its `config.json` too.
pub fn open_for<'a>(
    config: &'a Config,
    bundle: &Bundle,
    path: &Path,
) -> Result<(LeaseManager<'a>, BundleLock)> {
    let locked = Some(path.to_owned());
    let leases = LeaseManager::open(config, Box::new(OciBundles { locked }))?;
    let lock = lock(leases.store(), bundle)?;
    Ok((leases, lock))
}

/// Returns none where there is no ledger, for callers that only look or give back.
pub fn existing(config: &Config) -> Result<Option<LeaseManager<'_>>> {
    LeaseManager::existing(config, Box::<OciBundles>::default())
}

/// Returns the leases for a hook that knows its lease, and whether the ledger was there: one that is gone
/// is created anew.
pub fn existing_or_new(config: &Config) -> Result<(LeaseManager<'_>, bool)> {
    Ok(match existing(config)? {
        Some(leases) => (leases, true),
        None => {
            let leases = LeaseManager::open(config, Box::<OciBundles>::default())?;
            (leases, false)
        }
    })
}

/// Locks a bundle for a create, until its low-level runtime has read `config.json`: two containers of one
/// bundle would else start with the same slice.
fn lock(store: &Store, bundle: &Bundle) -> Result<BundleLock> {
    try_lock(store, bundle)?.ok_or_else(|| {
        Error::new(format!(
            "bundle {} is in use by another create",
            bundle.path().display()
        ))
        .hint("let it end, or use another bundle")
    })
}

/// Locks a bundle for a create that asks for nothing any more. None where there is no ledger: then no other
/// create is at work.
pub fn lock_if_any(config: &Config, bundle: &Bundle) -> Result<Option<BundleLock>> {
    let store = Store::existing(&config.state_dir, config.lock_timeout)?;
    store.map(|store| lock(&store, bundle)).transpose()
}

fn try_lock(store: &Store, bundle: &Bundle) -> Result<Option<BundleLock>> {
    let (dev, ino) = bundle.id()?;
    store.try_lock_bundle(BundleId { dev, ino })
}

/// Reads a bundle's account of the leases that its hook names, before the first is given back, which takes
/// it away.
pub fn told_by(bundle: &Path, first: &str) -> Told {
    let bundle = Bundle::open(bundle).ok();
    let author = bundle.as_ref().and_then(|b| b.author().ok().flatten());
    Told::new(
        author.filter(|a| a.lease == first),
        bundle.map_or(Vec::new(), |b| b.granted_to(first)),
    )
}

/// Puts the original back without a ledger, hence without a lock: a create of the same bundle would
/// have put its own leases there.
pub fn restore_without_ledger(bundle: &Path, lease: &str) -> Result<()> {
    match bundle::is_removed(bundle) {
        false => Bundle::open(bundle)?.restore(lease).map(drop),
        true => Ok(()),
    }
}
