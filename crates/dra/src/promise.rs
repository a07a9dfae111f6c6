//! Promises: puts the places of a bound pod's claims on record before the kubelet asks for them, so that no local create
//! takes them. It watches the pods of this node, and never all claims of the cluster.

use crate::api::in_time;
use crate::claim::ClaimName;
use crate::prepare::Claims;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use runmig_lease::error::{Context, Result};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::Notify;

/// Promises the claims of each pod that is bound to the node, without an end. A pod that goes wakes the sweep.
pub(crate) async fn promise(claims: Arc<Claims>, node: &str, sweep: Arc<Notify>) {
    let pods: Api<Pod> = Api::all(claims.client().clone());
    let here = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut changes = pin!(watcher(pods, here).default_backoff());
    // The claims that are on record, so that a pod's later changes cost nothing.
    let mut done = BTreeSet::new();
    while let Some(change) = changes.next().await {
        match change {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                for name in claims_of(&pod) {
                    if done.contains(&name) {
                        continue;
                    }
                    match claims.promise(&name, pod.uid().unwrap_or_default()).await {
                        Ok(true) => drop(done.insert(name)),
                        Ok(false) => {}
                        // Prepare says it to the pod.
                        Err(e) => tracing::warn!("{}", e.line()),
                    }
                }
            }
            Ok(Event::Delete(pod)) => {
                for name in claims_of(&pod) {
                    done.remove(&name);
                }
                sweep.notify_one();
            }
            Ok(Event::Init | Event::InitDone) => {}
            Err(e) => tracing::warn!("cannot watch the pods of this node: {e}"),
        }
    }
}

/// Returns the claims of a pod that has not started, as namespace and name.
fn claims_of(pod: &Pod) -> Vec<(String, String)> {
    let status = pod.status.as_ref();
    let is_over = status
        .and_then(|s| s.phase.as_deref())
        .is_some_and(|phase| ["Succeeded", "Failed"].contains(&phase));
    if is_over {
        return Vec::new();
    }
    let generated = { status.and_then(|s| s.resource_claim_statuses.as_ref()) }
        .into_iter()
        .flatten()
        .filter_map(|s| s.resource_claim_name.clone());
    let named = { pod.spec.as_ref().and_then(|s| s.resource_claims.as_ref()) }
        .into_iter()
        .flatten()
        .filter_map(|c| c.resource_claim_name.clone());
    let extended = { status.and_then(|s| s.extended_resource_claim_status.as_ref()) }
        .map(|s| s.resource_claim_name.clone());
    let namespace = pod.namespace().unwrap_or_default();
    let names: BTreeSet<String> = generated.chain(named).chain(extended).collect();
    names
        .into_iter()
        .map(|name| (namespace.clone(), name))
        .collect()
}

impl Claims {
    /// Promises the devices of a claim that is reserved for a pod. Returns false for a claim that is none of ours, or not
    /// yet.
    async fn promise(&self, (namespace, name): &(String, String), pod: String) -> Result<bool> {
        let what = || format!("promise the slices of claim {namespace}/{name}");
        let claims = Api::namespaced(self.client().clone(), namespace);
        let found = in_time(claims.get_opt(name)).await.context(what)?;
        let Some(uid) = found.as_ref().and_then(ResourceExt::uid) else {
            return Ok(false);
        };
        let asked = ClaimName {
            namespace: namespace.clone(),
            name: name.clone(),
            uid,
        };
        // A claim for others, or of a later pod, is no failure here.
        match self.allocated(found.as_ref(), &asked) {
            Ok(allocated) if allocated.pods.iter().any(|p| p.uid == pod) => {
                let promised = self.promise_devices(&asked, allocated).await;
                promised.context(what).map(|()| true)
            }
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finds_claims_of_every_kind() {
        let pod = |phase: &str| -> Pod {
            let pod = json!({
                "metadata": {"name": "p", "namespace": "n"},
                "spec": {"containers": [], "resourceClaims": [
                    {"name": "a", "resourceClaimName": "named"},
                    {"name": "b", "resourceClaimTemplateName": "t"},
                ]},
                "status": {
                    "phase": phase,
                    "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}, {"name": "c"}],
                    "extendedResourceClaimStatus": {"requestMappings": [], "resourceClaimName": "extended"},
                },
            });
            serde_json::from_value(pod).unwrap()
        };
        let names: Vec<String> = claims_of(&pod("Pending"))
            .into_iter()
            .map(|(_, n)| n)
            .collect();
        assert_eq!(names, ["extended", "made", "named"]);
        assert_eq!(claims_of(&pod("Succeeded")), []);
        assert_eq!(claims_of(&Pod::default()), []);
    }
}
