//! Keeps the ResourceSlices of this node in the API. Others change and delete them: the kubelet removes all when the
//! driver is away for long, and at its own start.

use crate::api::in_time;
use crate::driver::NAME as DRIVER;
use futures::StreamExt;
use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use runmig_lease::error::{Context, Result};
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

/// The time after a change in which more changes come.
const JOIN: Duration = Duration::from_millis(100);
/// The time before the next try after an error.
const PAUSE: Duration = Duration::from_secs(2);

/// Writes the ResourceSlices of a node and restores them, without an end.
pub(crate) async fn publish(client: Client, node: &str, wanted: Vec<ResourceSlice>) {
    let api: Api<ResourceSlice> = Api::all(client);
    let mut published = Published {
        api: api.clone(),
        wanted,
        accepted: BTreeMap::new(),
        present: BTreeMap::new(),
    };
    let ours = format!("spec.driver={DRIVER},spec.nodeName={node}");
    let mut changes =
        pin!(watcher(api, watcher::Config::default().fields(&ours)).default_backoff());
    // The first list tells what is present.
    let mut listed = false;
    loop {
        let due = if listed && !published.is_right() {
            JOIN
        } else {
            Duration::MAX
        };
        match tokio::time::timeout(due, changes.next()).await {
            Ok(Some(Ok(event))) => listed |= published.see(event),
            Ok(Some(Err(e))) => tracing::warn!("cannot watch the ResourceSlices of this node: {e}"),
            Ok(None) => return,
            Err(_) => {
                if let Err(e) = published.correct().await {
                    tracing::warn!("{}", e.line());
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

struct Published {
    api: Api<ResourceSlice>,
    wanted: Vec<ResourceSlice>,
    /// The API server's spelling of a ResourceSlice that this process wrote.
    accepted: BTreeMap<String, ResourceSliceSpec>,
    present: BTreeMap<String, ResourceSlice>,
}

impl Published {
    /// Notes a change. Returns whether the list of all is complete.
    fn see(&mut self, event: Event<ResourceSlice>) -> bool {
        match event {
            Event::Init => self.present.clear(),
            Event::InitDone => return true,
            Event::InitApply(slice) | Event::Apply(slice) => {
                self.present.insert(slice.name_any(), slice);
            }
            Event::Delete(slice) => {
                self.present.remove(&slice.name_any());
            }
        }
        false
    }

    fn is_right(&self) -> bool {
        self.present.len() == self.wanted.len()
            && self.wanted.iter().all(|slice| self.stands(slice))
    }

    /// Returns whether a ResourceSlice is present as this process wrote it.
    fn stands(&self, wanted: &ResourceSlice) -> bool {
        let name = wanted.name_any();
        let present = self.present.get(&name).map(|present| &present.spec);
        present.is_some() && present == self.accepted.get(&name)
    }

    /// Writes what is missing or different, and removes what nobody wants.
    async fn correct(&mut self) -> Result<()> {
        let wrong: Vec<ResourceSlice> = { self.wanted.iter() }
            .filter(|wanted| !self.stands(wanted))
            .cloned()
            .collect();
        for mut slice in wrong {
            let name = slice.name_any();
            let write = PostParams::default();
            let present = self.present.get(&name);
            slice.metadata.resource_version = present.and_then(ResourceExt::resource_version);
            let written = match present {
                Some(_) => in_time(self.api.replace(&name, &write, &slice)).await,
                None => in_time(self.api.create(&write, &slice)).await,
            };
            let written = written.context(|| format!("write ResourceSlice {name}"))?;
            tracing::info!("ResourceSlice {name} is in place");
            self.accepted.insert(name.clone(), written.spec.clone());
            self.present.insert(name, written);
        }
        let is_wanted = |name: &str| self.wanted.iter().any(|wanted| wanted.name_any() == name);
        let others: Vec<String> = { self.present.keys() }
            .filter(|name| !is_wanted(name))
            .cloned()
            .collect();
        for name in others {
            let removed = in_time(self.api.delete(&name, &DeleteParams::default())).await;
            removed.context(|| format!("remove ResourceSlice {name}"))?;
            self.present.remove(&name);
        }
        Ok(())
    }
}
