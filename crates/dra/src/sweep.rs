//! Ends the leases of claims that Kubernetes has withdrawn without a word to this node: at the start, every minute, and
//! when a pod of the node goes.

use crate::api;
use crate::claim::{ClaimName, withdrawn};
use crate::ledger;
use crate::prepare::{Claims, blocking};
use runmig_lease::error::Result;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The time between two sweeps that nobody asked for.
const EVERY: Duration = Duration::from_secs(60);

/// Sweeps without an end. `wake` asks for one at once.
pub(crate) async fn sweep(claims: Arc<Claims>, wake: Arc<Notify>) {
    loop {
        if let Err(e) = once(&claims).await {
            tracing::warn!("{}", e.line());
        }
        // A sweep that is asked for too often changes nothing.
        let _ = tokio::time::timeout(EVERY, wake.notified()).await;
    }
}

/// Looks at each claim on record. An API server that does not answer keeps all.
async fn once(claims: &Claims) -> Result<()> {
    let config = claims.config().clone();
    blocking(move || ledger::release_ended(&config)).await?;
    for held in claims.on_record().await? {
        let name = ClaimName {
            namespace: held.namespace.clone(),
            name: held.name.clone(),
            uid: held.uid.clone(),
        };
        let found = api::claim(claims.client(), &name.namespace, &name.name).await?;
        let Some(why) = withdrawn(found.as_ref(), &held) else {
            continue;
        };
        match claims.unprepare_unused(&name).await {
            Ok(None) => tracing::info!("{held} is released: {why}"),
            Ok(Some(used)) => tracing::info!("{held} keeps its slice, although {why}: {used}"),
            Err(e) => tracing::warn!("{}", e.line()),
        }
    }
    Ok(())
}

impl Claims {
    /// Ends the lease of a claim unless a container or a process uses its slice. Returns the user.
    async fn unprepare_unused(&self, claim: &ClaimName) -> Result<Option<String>> {
        let (config, uid) = (self.config().clone(), claim.uid.clone());
        let used = blocking(move || ledger::user_of(&config, &uid)).await?;
        match used {
            Some(used) => Ok(Some(used)),
            None => self.unprepare(claim).await.map(|()| None),
        }
    }
}
