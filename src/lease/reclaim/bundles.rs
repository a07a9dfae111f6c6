//! The bundles of leases: their locks, and the original `config.json` that goes back into them.

use crate::config::Config;
use crate::error::{Error, Result, printable};
use crate::lease::context::LeaseContext;
use crate::spec::bundle::{self, Bundle};
use crate::store::{BundleId, BundleLock, Store};
use std::path::Path;

/// Locks a bundle for a create, until its low-level runtime has read `config.json`: two containers of one
/// bundle would else start with the same slice.
pub fn lock(store: &Store, bundle: &Bundle) -> Result<BundleLock> {
    try_lock(store, bundle)?.ok_or_else(|| {
        Error::new(format!(
            "bundle {} is in use by another create",
            bundle.path().display()
        ))
        .hint("let it end, or use another bundle")
    })
}

/// The same for a create that asks for nothing any more, and may have no ledger: then no other create is
/// at work.
pub fn lock_if_any(config: &Config, bundle: &Bundle) -> Result<Option<BundleLock>> {
    let store = Store::existing(&config.state_dir, config.lock_timeout)?;
    store.map(|store| lock(&store, bundle)).transpose()
}

fn try_lock(store: &Store, bundle: &Bundle) -> Result<Option<BundleLock>> {
    let (dev, ino) = bundle.id()?;
    store.try_lock_bundle(BundleId { dev, ino })
}

/// Puts the original `config.json` back, if the file is still the one that this lease's create wrote. An
/// engine may remove the bundle before or after: one that is gone needs nothing. Another create of the
/// same bundle that is at work makes its own edit of what it finds there.
pub fn restore(context: &LeaseContext<'_>, path: &Path, lease: &str) -> Result<()> {
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
    let is_ours = context.locked_bundle.as_deref() == Some(path);
    let lock = match is_ours {
        true => None,
        false => try_lock(&context.store, &bundle)?,
    };
    if !is_ours && lock.is_none() {
        return Ok(());
    }
    bundle.restore(lease).map(drop)
}
