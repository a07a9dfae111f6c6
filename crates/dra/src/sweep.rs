//! Ends the leases of devices that Kubernetes has taken from a claim without a word to this node, and removes CDI files that
//! nobody uses: at the start, every minute, and when a pod of the node goes.

use crate::changes::Changes;
use crate::claim::{ClaimName, withdrawn};
use crate::obstacle::Obstacles;
use crate::pods::claims_of;
use crate::prepare::{Claims, blocking};
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
    // An obstacle that stays, such as an API server that is away, is told once and not every minute.
    let mut obstacles = Obstacles::default();
    loop {
        let config = claims.config().clone();
        let mut failures = Vec::new();
        if let Err(e) = blocking(move || ledger::release_ended(&config)).await {
            failures.push((e.line(), e));
        }
        match claims.on_record().await {
            Ok(all) => {
                for held in all {
                    if let Err(e) = one(&claims, &held).await {
                        // All claims meet the same obstacle.
                        let kind = e.line().replace(&held.full_name(), "…");
                        failures.push((kind, e));
                    }
                }
            }
            Err(e) => failures.push((e.line(), e)),
        }
        if let Err(e) = remove_left_files(&claims, node).await {
            failures.push((e.line(), e));
        }
        if failures.is_empty() {
            obstacles.are_over();
        }
        for (kind, e) in failures {
            if obstacles.is_new(&kind) {
                tracing::warn!("{}", e.line());
            }
        }
        // A sweep that is asked for too often changes nothing.
        let _ = tokio::time::timeout(EVERY, wake.notified()).await;
    }
}

/// Ends what containers of claims left, whenever the ledger changes: the hook at their end only writes it.
pub(crate) async fn end_left(config: Arc<Config>) {
    let mut changes = Changes::of(config.clone());
    loop {
        changes.next().await;
        let config = config.clone();
        if let Err(e) = blocking(move || ledger::release_ended(&config)).await {
            tracing::warn!("{}", e.line());
        }
    }
}

/// Looks at one device of a claim on record. An API server that does not answer keeps it.
async fn one(claims: &Claims, held: &Claim) -> Result<()> {
    // The first look needs no turn. Most claims are in order.
    let found = api::claim(claims.client(), &held.namespace, &held.name).await?;
    match withdrawn(found.as_ref(), held) {
        Some(_) => claims.sweep(held.clone()).await,
        None => Ok(()),
    }
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
            let uid = found.and_then(|claim| claim.metadata.uid);
            left.remove(&uid.unwrap_or_default());
        }
    }
    for uid in left {
        let claim = ClaimName {
            namespace: String::new(),
            name: String::new(),
            uid,
        };
        claims.remove_left_file(&claim).await?;
    }
    Ok(())
}
