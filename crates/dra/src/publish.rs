//! Keeps the ResourceSlices of this node in the API. Others change and delete them: the kubelet removes all when the
//! driver is away for long, and at its own start.

use crate::api::{in_time, probe, slices_of};
use crate::slices::keep_times;
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
use tokio::sync::watch;
use tokio::time::Instant;

/// The time after a change by others in which more changes come. The looks at the node join those of the ledger.
const JOIN: Duration = Duration::from_millis(100);
/// The time before the next try after an error.
const PAUSE: Duration = Duration::from_secs(2);

/// Writes the ResourceSlices of a node and restores them, without an end.
pub async fn publish(client: Client, node: &str, mut wanted: watch::Receiver<Vec<ResourceSlice>>) {
    // Until then nobody knows which of those that are present are wanted.
    if wanted.changed().await.is_err() {
        return;
    }
    let api: Api<ResourceSlice> = Api::all(client.clone());
    let mut published = Published {
        api: api.clone(),
        client,
        node: node.to_owned(),
        is_dropping: false,
        wanted: wanted.borrow_and_update().clone(),
        written: BTreeMap::new(),
        present: BTreeMap::new(),
    };
    let ours = slices_of(node);
    let mut changes =
        pin!(watcher(api, watcher::Config::default().fields(&ours)).default_backoff());
    // The first list tells what is present.
    let mut listed = false;
    // The time of the next write. More changes do not put it off.
    let mut due: Option<Instant> = None;
    loop {
        due = match listed && !published.is_right() {
            true => due.or_else(|| Some(Instant::now() + JOIN)),
            false => None,
        };
        let at = due.unwrap_or_else(Instant::now);
        tokio::select! {
            // A write over what others have written meanwhile would fail.
            biased;
            change = changes.next() => match change {
                Some(Ok(event)) => {
                    // A list that begins anew tells what is present only at its end.
                    listed &= !matches!(event, Event::Init);
                    listed |= published.see(event);
                }
                Some(Err(e)) => tracing::warn!("cannot watch the ResourceSlices of this node: {e}"),
                None => return,
            },
            told = wanted.changed() => match told {
                Ok(()) => {
                    published.wanted = wanted.borrow_and_update().clone();
                    due = Some(Instant::now());
                }
                Err(_) => return,
            },
            () = tokio::time::sleep_until(at), if due.is_some() => {
                if let Err(e) = published.correct().await {
                    tracing::warn!("{}", e.line());
                    tokio::time::sleep(PAUSE).await;
                    due = Some(Instant::now() + JOIN);
                }
            }
        }
    }
}

struct Published {
    api: Api<ResourceSlice>,
    client: Client,
    node: String,
    /// Says that the API server dropped the counters of a ResourceSlice, and that none is there since.
    is_dropping: bool,
    wanted: Vec<ResourceSlice>,
    /// The ResourceSlices that this process wrote, each in its own spelling and in the API server's.
    written: BTreeMap<String, [ResourceSliceSpec; 2]>,
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
        { self.written.get(&name) }
            .is_some_and(|[ours, theirs]| *ours == wanted.spec && present == Some(theirs))
    }

    /// Writes what is missing or different, and removes what nobody wants.
    async fn correct(&mut self) -> Result<()> {
        if self.is_dropping {
            if !probe::keeps_counters(&self.client, &self.node).await? {
                tokio::time::sleep(PAUSE).await;
                return Ok(());
            }
            self.is_dropping = false;
        }
        let wrong: Vec<ResourceSlice> = { self.wanted.iter() }
            .filter(|wanted| !self.stands(wanted))
            .cloned()
            .collect();
        for mut slice in wrong {
            let name = slice.name_any();
            let write = PostParams::default();
            let present = self.present.get(&name);
            let ours = slice.spec.clone();
            if let Some(present) = present {
                keep_times(&mut slice, present);
            }
            slice.metadata.resource_version = present.and_then(ResourceExt::resource_version);
            let written = match present {
                Some(_) => in_time(self.api.replace(&name, &write, &slice)).await,
                None => in_time(self.api.create(&write, &slice)).await,
            };
            let written = written.context(|| format!("write ResourceSlice {name}"))?;
            if has_counters(&ours) && !has_counters(&written.spec) {
                // Without counters the scheduler gives out places that overlap.
                tracing::error!("{}", probe::without_counters().line());
                self.is_dropping = true;
                self.present.insert(name, written);
                return self.remove(|_| true).await;
            }
            tracing::info!("ResourceSlice {name} is in place");
            let spellings = [ours, written.spec.clone()];
            self.written.insert(name.clone(), spellings);
            self.present.insert(name, written);
        }
        let wanted: Vec<String> = self.wanted.iter().map(ResourceExt::name_any).collect();
        self.remove(|name| !wanted.contains(name)).await
    }

    /// Removes ResourceSlices that are present, by their names.
    async fn remove(&mut self, goes: impl Fn(&String) -> bool) -> Result<()> {
        let names: Vec<String> = self.present.keys().filter(|n| goes(n)).cloned().collect();
        for name in names {
            let removed = in_time(self.api.delete(&name, &DeleteParams::default())).await;
            removed.context(|| format!("remove ResourceSlice {name}"))?;
            self.present.remove(&name);
        }
        Ok(())
    }
}

/// Says whether a ResourceSlice has counters, or a device that uses some.
fn has_counters(spec: &ResourceSliceSpec) -> bool {
    let mut devices = spec.devices.iter().flatten();
    spec.shared_counters.is_some() || devices.any(|device| device.consumes_counters.is_some())
}
