//! Keeps the ResourceSlices of this node in the API. Others change and delete them: the kubelet removes all when the
//! driver is away for long, and at its own start.

mod contest;

use crate::api::{Watch, in_time, probe, slices_of};
use crate::driver::NAME as DRIVER;
use crate::obstacle::Obstacles;
use crate::slices::keep_times;
use contest::Contest;
use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use runmig_lease::error::{Context, Result};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The time after a change by others in which more changes come. The looks at the node join those of the ledger.
const JOIN: Duration = Duration::from_millis(100);
/// The name by which this program calls itself to the API server.
const OWNER: &str = "runmig-dra";

/// Writes the ResourceSlices of a node and restores them, without an end.
pub async fn publish(client: Client, node: &str, mut wanted: watch::Receiver<Vec<ResourceSlice>>) {
    // Until then nobody knows which of those that are present are wanted.
    if wanted.changed().await.is_err() {
        return;
    }
    let mut published = Published {
        api: Api::all(client.clone()),
        client: client.clone(),
        node: node.to_owned(),
        is_dropping: false,
        wanted: wanted.borrow_and_update().clone(),
        written: BTreeMap::new(),
        present: BTreeMap::new(),
        contest: Contest::default(),
    };
    let mut changes = Watch::new(client, slices_of(node), "the ResourceSlices of this node");
    let mut obstacles = Obstacles::default();
    // The time of the next write, and the earliest one. More changes do not put a write off.
    let (mut due, mut next_try) = (None, Instant::now());
    loop {
        // The first list tells what is present.
        due = match changes.is_complete() && !published.is_right() {
            true => due.or_else(|| Some(Instant::now() + JOIN)),
            false => None,
        };
        let at = due.unwrap_or_else(Instant::now).max(next_try);
        tokio::select! {
            // A write over what others have written meanwhile would fail.
            biased;
            event = changes.next() => published.see(event),
            told = wanted.changed() => match told {
                Ok(()) => {
                    published.wanted = wanted.borrow_and_update().clone();
                    due = Some(Instant::now());
                }
                Err(_) => return,
            },
            () = tokio::time::sleep_until(at), if due.is_some() => match published.correct().await {
                Ok(()) => {
                    if obstacles.are_over() {
                        tracing::info!("the ResourceSlices of this node are in place again");
                    }
                    next_try = Instant::now() + published.contest.pause();
                }
                Err(e) => {
                    let line = e.line();
                    if obstacles.is_new(&line) {
                        tracing::warn!("{line}");
                    }
                    next_try = Instant::now() + obstacles.pause();
                    // The write may have failed since others are present than the watch has told.
                    changes.restart();
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
    contest: Contest,
}

impl Published {
    /// Notes a change.
    fn see(&mut self, event: Event<ResourceSlice>) {
        match event {
            Event::Init => self.present.clear(),
            Event::InitDone => {}
            // The answer to a write may come before the events that precede the write.
            Event::Apply(slice) | Event::Delete(slice) if self.is_past(&slice) => {}
            Event::InitApply(slice) | Event::Apply(slice) => {
                self.present.insert(slice.name_any(), slice);
            }
            Event::Delete(slice) => {
                self.present.remove(&slice.name_any());
            }
        }
    }

    /// Returns whether a later version of a ResourceSlice is known. Versions are numbers that only grow.
    fn is_past(&self, slice: &ResourceSlice) -> bool {
        let version = |slice: &ResourceSlice| slice.resource_version()?.parse::<u64>().ok();
        let known = self.present.get(&slice.name_any()).and_then(version);
        matches!((version(slice), known), (Some(told), Some(known)) if told < known)
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

    /// Returns the changes that others have made, in words.
    fn foreign_changes(&self) -> Option<String> {
        let changed = self.wanted.iter().find_map(|wanted| {
            let name = wanted.name_any();
            let [ours, theirs] = self.written.get(&name)?;
            let is_ours = *ours == wanted.spec;
            match self.present.get(&name) {
                _ if !is_ours => None,
                None => Some(format!(
                    "ResourceSlice {name} is written again: another program has deleted it"
                )),
                Some(present) if present.spec == *theirs => None,
                Some(present) => Some(format!(
                    "ResourceSlice {name} is written again: {} has changed it",
                    writer(present)
                )),
            }
        });
        let added = self.present.values().find(|present| {
            let name = present.name_any();
            let pools = self.wanted.iter().map(|wanted| &wanted.spec.pool.name);
            let is_of_pool = pools.clone().next().is_none()
                || pools.clone().any(|pool| *pool == present.spec.pool.name);
            // A process before this one may have left some of the pool.
            !self.is_wanted(&name)
                && !self.written.contains_key(&name)
                && (!is_of_pool || !self.written.is_empty())
        });
        changed.or_else(|| {
            added.map(|added| {
                format!(
                    "ResourceSlice {} of pool {} is removed: {} published it for this node under {DRIVER}",
                    added.name_any(),
                    added.spec.pool.name,
                    writer(added)
                )
            })
        })
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.wanted.iter().any(|wanted| wanted.name_any() == name)
    }

    /// Writes what is missing or different, and removes what nobody wants.
    async fn correct(&mut self) -> Result<()> {
        if self.is_dropping {
            if !probe::keeps_counters(&self.client, &self.node).await? {
                return Err(probe::without_counters());
            }
            self.is_dropping = false;
        }
        if let Some(change) = self.foreign_changes() {
            self.contest.note(&change);
        }
        let wrong: Vec<ResourceSlice> = { self.wanted.iter() }
            .filter(|wanted| !self.stands(wanted))
            .cloned()
            .collect();
        for mut slice in wrong {
            let name = slice.name_any();
            let write = PostParams {
                field_manager: Some(OWNER.to_owned()),
                ..PostParams::default()
            };
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
                self.is_dropping = true;
                self.present.insert(name, written);
                self.remove(|_| true).await?;
                return Err(probe::without_counters());
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

/// Returns the name of the other program that wrote an object last, as it calls itself.
fn writer(slice: &ResourceSlice) -> String {
    let fields = slice.metadata.managed_fields.iter().flatten();
    let others = fields.filter(|entry| entry.manager.as_deref() != Some(OWNER));
    let last = others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    match last.and_then(|entry| entry.manager.as_deref()) {
        Some(manager) => format!("another program ({manager})"),
        None => "another program".to_owned(),
    }
}

/// Says whether a ResourceSlice has counters, or a device that uses some.
fn has_counters(spec: &ResourceSliceSpec) -> bool {
    let mut devices = spec.devices.iter().flatten();
    spec.shared_counters.is_some() || devices.any(|device| device.consumes_counters.is_some())
}
