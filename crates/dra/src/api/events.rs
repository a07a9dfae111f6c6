//! Events.

use super::{Client, in_time};
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use runmig_lease::error::{Context, Result};

/// Creates an event in its namespace.
pub(crate) async fn create_event(client: &Client, event: &Event) -> Result<()> {
    let events: Api<Event> =
        Api::namespaced(client.clone(), &event.namespace().unwrap_or_default());
    let created = in_time(events.create(&PostParams::default(), event)).await;
    let regarding = event.regarding.as_ref().and_then(|pod| pod.name.as_deref());
    let what = || format!("create an event of pod {}", regarding.unwrap_or_default());
    created
        .context(what)
        .map_err(|e| e.hint("give the account of runmig-dra the rights of docs/dra.md"))
        .map(drop)
}
