//! Ends the leases of devices that Kubernetes has taken from a claim without a word to this node, and removes CDI files that
//! nobody uses: at the start, every minute, and when a pod of the node goes.

use crate::api;
use crate::changes::Changes;
use crate::claim::claims_of;
use crate::ledger::{self, blocking};
use crate::obstacle::Obstacles;
use crate::prepare::Claims;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use runmig_lease::store::Claim;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The time between two sweeps that nobody asked for.
const EVERY: Duration = Duration::from_secs(60);

/// Sweeps without an end. `wake` asks for one at once.
pub(crate) async fn sweep(claims: &Claims, node: &str, wake: &Notify) {
    // An obstacle that stays, such as an API server that is away, is told once and not every minute.
    let mut obstacles = Obstacles::default();
    loop {
        let mut is_failing = false;
        let mut note = |done: Result<()>, of: Option<&Claim>| {
            let Err(e) = done else { return };
            is_failing = true;
            let line = e.line();
            // All claims meet the same obstacle.
            let kind = of.map_or_else(|| line.clone(), |c| line.replace(&c.full_name(), "…"));
            if obstacles.is_new(&kind) {
                tracing::warn!("{line}");
            }
        };
        let config = claims.node.config.clone();
        note(blocking(move || ledger::release_ended(&config)).await, None);
        let config = claims.node.config.clone();
        match blocking(move || ledger::claims(&config)).await {
            Ok(all) => {
                for held in all {
                    note(claims.sweep(&held).await, Some(&held));
                }
            }
            Err(e) => note(Err(e), None),
        }
        note(remove_left_files(claims, node).await, None);
        if !is_failing {
            obstacles.are_over();
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

/// Removes the CDI files of claims without a lease, which an operator released by hand. A pod that names the claim keeps
/// the file, since the engine finds no CDI device without one.
async fn remove_left_files(claims: &Claims, node: &str) -> Result<()> {
    let mut left = claims.left_files().await?;
    if left.is_empty() {
        return Ok(());
    }
    let client = &claims.node.client;
    for pod in api::pods(client, node).await? {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        for name in claims_of(&pod) {
            let found = api::claim(client, namespace, &name).await?;
            let uid = found.and_then(|claim| claim.metadata.uid);
            left.remove(&uid.unwrap_or_default());
        }
    }
    for uid in left {
        claims.remove_left_file(uid).await?;
    }
    Ok(())
}
