//! The one process of a node that publishes, promises and sweeps. Another one serves the kubelet and waits for its turn.

use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::store::{Lock, Store};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Waits until this process may publish, which it may until it drops the lock or ends.
pub(crate) async fn lead(config: Arc<Config>) -> Result<Lock> {
    let store = Store::open(&config.state_dir, config.lock_timeout)?;
    let by = match store.try_lock_driver()? {
        Ok(lock) => return Ok(lock),
        Err(by) => by,
    };
    tracing::warn!(
        "another runmig-dra publishes for this node, {by}; this process serves the kubelet, and publishes when the other \
         ends"
    );
    // The kernel's wait has no end, so it has a thread that ends with the process.
    let (told, taken) = oneshot::channel();
    let waiter = std::thread::Builder::new().name("lead".to_owned());
    waiter
        .spawn(move || told.send(store.lock_driver()))
        .context(|| "wait for the other runmig-dra")?;
    let lock = taken.await;
    let lock =
        lock.map_err(|_| Error::new("cannot wait for the other runmig-dra: the wait failed"))??;
    tracing::info!("this process publishes for this node now");
    Ok(lock)
}
