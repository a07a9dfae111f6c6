//! Promises: puts the places of a bound pod's claims on record before the kubelet asks for them, so that no local create
//! takes them. It watches the pods of this node, and never all claims of the cluster.

use crate::api::{self, Event, Watch};
use crate::claim::{ClaimName, claims_of};
use crate::prepare::Claims;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use runmig_lease::error::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::{Notify, Semaphore};

/// The reads at once. Each has a connection, and its memory stays for a while.
const READS: usize = 4;

/// Promises the claims of each pod that is bound to the node, without an end. A pod that goes wakes the sweep.
pub(crate) async fn promise(claims: &Claims, node: &str, sweep: &Notify) {
    let here = format!("spec.nodeName={node}");
    let mut changes: Watch<Pod> =
        Watch::new(claims.node.client.clone(), here, "the pods of this node");
    // The claims of each pod that are on record, so that the pod's later changes cost nothing.
    let mut done: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let reads = &Semaphore::new(READS);
    // A claim may be at work for long, and the others do not wait for it.
    let mut working = FuturesUnordered::new();
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            Some((uid, name, promised)) = working.next(), if !working.is_empty() => {
                let promised: Result<bool> = promised;
                match (promised, done.get_mut(&uid)) {
                    (Ok(true), Some(names)) => drop(names.insert(name)),
                    (Ok(_), _) => {}
                    // Prepare says it to the pod.
                    (Err(e), _) => tracing::warn!("{}", e.line()),
                }
                continue;
            }
        };
        match change {
            Event::Apply(pod) | Event::InitApply(pod) => {
                let uid = pod.uid().unwrap_or_default();
                let namespace = pod.namespace().unwrap_or_default();
                let on_record = done.entry(uid.clone()).or_default();
                for name in claims_of(&pod).difference(on_record).cloned() {
                    let (uid, namespace) = (uid.clone(), namespace.clone());
                    working.push(async move {
                        let promised = one(claims, reads, &namespace, &name, &uid).await;
                        let what = || format!("promise the slices of claim {namespace}/{name}");
                        let promised = promised.context(what);
                        (uid, name, promised)
                    });
                }
            }
            Event::Delete(pod) => {
                done.remove(&pod.uid().unwrap_or_default());
                sweep.notify_one();
            }
            // Pods that went during a lost watch are not told.
            Event::Init => done.clear(),
            Event::InitDone => sweep.notify_one(),
        }
    }
}

/// Promises a claim of a pod. Returns whether the claim has the pod on record. A claim that is none of ours, or not yet,
/// has not.
async fn one(
    claims: &Claims,
    reads: &Semaphore,
    namespace: &str,
    name: &str,
    pod: &str,
) -> Result<bool> {
    let turn = reads.acquire().await;
    let found = api::claim(&claims.node.client, namespace, name).await?;
    drop(turn);
    let Some(uid) = found.and_then(|claim| claim.uid()) else {
        return Ok(false);
    };
    let claim = ClaimName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid,
    };
    claims.promise(&claim, pod).await
}
