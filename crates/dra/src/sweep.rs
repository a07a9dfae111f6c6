//! Ends the leases of devices that Kubernetes has taken from a claim without a word to this node, and removes CDI files that
//! nobody uses: at the start, every minute, and when a pod of the node goes.

use crate::changes::{Changes, changed};
use crate::claim::{ClaimName, withdrawn};
use crate::pods::claims_of;
use crate::prepare::{Claims, Swept, blocking};
use crate::{api, ledger};
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::store::Claim;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The time between two sweeps that nobody asked for.
const EVERY: Duration = Duration::from_secs(60);

/// Sweeps without an end. `wake` asks for one at once.
pub(crate) async fn sweep(claims: Arc<Claims>, node: &str, wake: Arc<Notify>) {
    loop {
        let config = claims.config().clone();
        warn(blocking(move || ledger::release_ended(&config)).await);
        match claims.on_record().await {
            Ok(all) => {
                for held in all {
                    warn(one(&claims, &held).await);
                }
            }
            Err(e) => tracing::warn!("{}", e.line()),
        }
        warn(remove_left_files(&claims, node).await);
        // A sweep that is asked for too often changes nothing.
        let _ = tokio::time::timeout(EVERY, wake.notified()).await;
    }
}

/// Ends what containers of claims left, whenever the ledger changes: the hook at their end only writes it.
pub(crate) async fn end_left(config: Arc<Config>) {
    let mut changes = Changes::of(&config).ok();
    loop {
        changed(&config, &mut changes).await;
        let config = config.clone();
        warn(blocking(move || ledger::release_ended(&config)).await);
    }
}

/// Logs a failure, which spares the other claims.
fn warn(done: Result<()>) {
    if let Err(e) = done {
        tracing::warn!("{}", e.line());
    }
}

/// Looks at one device of a claim on record. An API server that does not answer keeps it.
async fn one(claims: &Claims, held: &Claim) -> Result<()> {
    let name = ClaimName {
        namespace: held.namespace.clone(),
        name: held.name.clone(),
        uid: held.uid.clone(),
    };
    // The first look needs no turn. Most claims are in order.
    let found = api::claim(claims.client(), &name.namespace, &name.name).await?;
    if withdrawn(found.as_ref(), held).is_none() {
        return Ok(());
    }
    match claims.sweep(&name, held.clone()).await? {
        Swept::Kept => {}
        Swept::Used { why, by } => tracing::info!("{held} keeps its slice, although {why}: {by}"),
        Swept::Released { why } => tracing::info!("{held} is released: {why}"),
    }
    Ok(())
}

/// Removes the CDI files of claims without a lease, which an operator released by hand. A pod that names the claim keeps
/// the file, since the engine finds no CDI device without one.
async fn remove_left_files(claims: &Claims, node: &str) -> Result<()> {
    let mut left = claims.left_files().await?;
    if left.is_empty() {
        return Ok(());
    }
    for pod in api::pods(claims.client(), node).await? {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        for name in claims_of(&pod) {
            let found = api::claim(claims.client(), namespace, &name).await?;
            left.remove(
                &found
                    .and_then(|claim| claim.metadata.uid)
                    .unwrap_or_default(),
            );
        }
    }
    for uid in left {
        let claim = ClaimName {
            namespace: String::new(),
            name: String::new(),
            uid,
        };
        if claims.remove_left_file(&claim).await? {
            tracing::info!(
                "the CDI file of claim {} is removed: the claim has no lease",
                claim.uid
            );
        }
    }
    Ok(())
}
