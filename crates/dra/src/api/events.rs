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
    let what = || {
        let of = event.regarding.clone().unwrap_or_default();
        let kind = of.kind.unwrap_or_default().to_lowercase();
        format!("create an event of {kind} {}", of.name.unwrap_or_default())
    };
    created
        .context(what)
        .map_err(|e| e.hint("give the account of runmig-dra the rights of docs/dra.md"))
        .map(drop)
}
