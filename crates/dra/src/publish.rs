//! Keeps the ResourceSlices of this node in the API. Others change and delete them: the kubelet removes all when the
//! driver is away for long, and at its own start.

use crate::api::{Event, Watch, in_time, probe, slices_of};
use crate::memory;
use crate::obstacle::Obstacles;
use crate::resource_slices::objects::{Print, Times, Wanted, keep_times, times};
use crate::resource_slices::pool;
use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use runmig_lease::error::{Context, Result};
use runmig_lease::programs::DRIVER;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The time after a change by others in which more changes come. The looks at the node join those of the ledger.
const JOIN: Duration = Duration::from_millis(100);
/// The name by which this program calls itself to the API server.
const OWNER: &str = "runmig-dra";

/// Writes the ResourceSlices of a node and restores them, without an end.
pub async fn publish(client: Client, node: &str, mut told: watch::Receiver<Vec<Wanted>>) {
    // Until then nobody knows which of those that are present are wanted.
    if told.changed().await.is_err() {
        return;
    }
    let mut published = Published {
        api: Api::all(client.clone()),
        client: client.clone(),
        node: node.to_owned(),
        is_dropping: false,
        wanted: told.borrow_and_update().clone(),
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
        let rest = published.contest.rest(published.is_wiped());
        let at = due.max(rest).unwrap_or_else(Instant::now).max(next_try);
        tokio::select! {
            // A write over what others have written meanwhile would fail.
            biased;
            event = changes.next() => published.see(event),
            changed = told.changed() => {
                if changed.is_err() {
                    return;
                }
                published.wanted = told.borrow_and_update().clone();
                due = Some(Instant::now());
            }
            () = tokio::time::sleep_until(at), if due.is_some() => {
                let corrected = published.correct().await;
                memory::give_back();
                match corrected {
                    Ok(()) => {
                        if obstacles.are_over() {
                            tracing::info!("the ResourceSlices of this node are in place again");
                        }
                    }
                    Err(e) => {
                        let line = e.line();
                        // Not by `Obstacles::warn`: the ledger's log leaves out the lines of this module.
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
}

struct Published {
    api: Api<ResourceSlice>,
    client: Client,
    node: String,
    /// Says that the API server dropped the counters of a ResourceSlice, and that none is there since.
    is_dropping: bool,
    /// The ResourceSlices as the last look at the node has them.
    wanted: Vec<Wanted>,
    /// The ResourceSlices that this process wrote, each in its own spelling and in the API server's.
    written: BTreeMap<String, [Print; 2]>,
    present: BTreeMap<String, Present>,
    contest: Contest,
}

/// A ResourceSlice in the API.
struct Present {
    version: Option<String>,
    print: Print,
    times: Times,
    pool: String,
    /// Names the other program that wrote it last, for a message.
    writer: String,
}

impl Present {
    fn of(slice: &ResourceSlice) -> Present {
        let spec = serde_json::to_string(&slice.spec).unwrap_or_default();
        Present {
            version: slice.resource_version(),
            print: Sha256::digest(spec).into(),
            times: times(slice),
            pool: slice.spec.pool.name.clone(),
            writer: writer(slice),
        }
    }
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
                self.present.insert(slice.name_any(), Present::of(&slice));
            }
            Event::Delete(slice) => {
                self.present.remove(&slice.name_any());
            }
        }
    }

    /// Returns whether a later version of a ResourceSlice is known. Versions are numbers that only grow.
    fn is_past(&self, slice: &ResourceSlice) -> bool {
        let number = |version: Option<&String>| version?.parse::<u64>().ok();
        let told = number(slice.metadata.resource_version.as_ref());
        let known = self.present.get(&slice.name_any());
        let known = known.and_then(|known| number(known.version.as_ref()));
        matches!((told, known), (Some(told), Some(known)) if told < known)
    }

    fn is_right(&self) -> bool {
        self.present.len() == self.wanted.len() && self.wanted.iter().all(|it| self.stands(it))
    }

    /// Returns whether a wanted ResourceSlice is present as this process wrote it.
    fn stands(&self, wanted: &Wanted) -> bool {
        let present = self.present.get(&wanted.name).map(|present| &present.print);
        { self.written.get(&wanted.name) }
            .is_some_and(|[ours, theirs]| *ours == wanted.print && present == Some(theirs))
    }

    /// Returns whether none of the ResourceSlices is left. A kubelet that starts removes all.
    fn is_wiped(&self) -> bool {
        let mut wanted = self.wanted.iter();
        self.present.is_empty() && wanted.all(|it| self.written.contains_key(&it.name))
    }

    /// Returns the changes that others have made, in words.
    fn foreign_changes(&self) -> Option<String> {
        let changed = self.wanted.iter().find_map(|Wanted { name, print, .. }| {
            let [ours, theirs] = self.written.get(name)?;
            let what = match self.present.get(name) {
                _ if ours != print => return None,
                None => "another program has deleted it".to_owned(),
                Some(present) if present.print == *theirs => return None,
                Some(present) => format!("{} has changed it", present.writer),
            };
            Some(format!("ResourceSlice {name} is written again: {what}"))
        });
        if changed.is_some() {
            return changed;
        }
        let pool = pool(&self.node);
        let (name, added) = self.present.iter().find(|(name, present)| {
            let is_of_pool = present.pool == pool;
            // A process before this one may have left some of the pool.
            !self.is_wanted(name)
                && !self.written.contains_key(*name)
                && (!is_of_pool || !self.written.is_empty())
        })?;
        Some(format!(
            "ResourceSlice {name} of pool {} is removed: {} published it for this node under {DRIVER}",
            added.pool, added.writer
        ))
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.wanted.iter().any(|wanted| wanted.name == name)
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
            let is_wiped = self.is_wiped();
            self.contest.note(&change, is_wiped, Instant::now());
        }
        for wanted in self.wanted.clone() {
            if self.stands(&wanted) {
                continue;
            }
            let Wanted { name, text, print } = wanted;
            let slice = serde_json::from_str(&text);
            let mut slice: ResourceSlice =
                slice.context(|| format!("read ResourceSlice {name}"))?;
            let write = PostParams {
                field_manager: Some(OWNER.to_owned()),
                ..PostParams::default()
            };
            let counts = has_counters(&slice.spec);
            let written = match self.present.get(&name) {
                Some(present) => {
                    keep_times(&mut slice, &present.times);
                    slice.metadata.resource_version.clone_from(&present.version);
                    in_time(self.api.replace(&name, &write, &slice)).await
                }
                None => in_time(self.api.create(&write, &slice)).await,
            };
            let written = written.context(|| format!("write ResourceSlice {name}"))?;
            let present = Present::of(&written);
            if counts && !has_counters(&written.spec) {
                // Without counters the scheduler gives out places that overlap.
                self.is_dropping = true;
                self.present.insert(name, present);
                self.remove(self.present.keys().cloned().collect()).await?;
                self.written.clear();
                return Err(probe::without_counters());
            }
            tracing::info!("ResourceSlice {name} is in place");
            self.written.insert(name.clone(), [print, present.print]);
            self.present.insert(name, present);
        }
        let mut names: Vec<String> = self.present.keys().cloned().collect();
        names.retain(|name| !self.is_wanted(name));
        self.remove(names).await
    }

    /// Removes ResourceSlices that are present.
    async fn remove(&mut self, names: Vec<String>) -> Result<()> {
        for name in names {
            let removed = in_time(self.api.delete(&name, &DeleteParams::default())).await;
            removed.context(|| format!("remove ResourceSlice {name}"))?;
            self.present.remove(&name);
        }
        Ok(())
    }
}

/// Names the program other than this driver that wrote an object last.
fn writer(slice: &ResourceSlice) -> String {
    let fields = slice.metadata.managed_fields.iter().flatten();
    let others = fields.filter(|entry| entry.manager.as_deref() != Some(OWNER));
    let last = others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    match last.and_then(|entry| entry.manager.as_ref()) {
        Some(manager) => format!("another program ({manager})"),
        None => "another program".to_owned(),
    }
}

/// Says whether a ResourceSlice has counters, or a device that uses some.
fn has_counters(spec: &ResourceSliceSpec) -> bool {
    let mut devices = spec.devices.iter().flatten();
    spec.shared_counters.is_some() || devices.any(|device| device.consumes_counters.is_some())
}

/// The time without a foreign change after which the next one counts as the first.
const QUIET: Duration = Duration::from_secs(60);
/// The foreign changes in a row that are undone at once.
const AT_ONCE: u32 = 3;
/// The time between two writes of all ResourceSlices.
const WIPES: Duration = Duration::from_secs(1);

/// The changes by others that were undone of late. A program that changes ResourceSlices again and again, such as a driver
/// on another machine with the name of this node, is named once and slowed down: each write wakes all waiting pods.
#[derive(Default)]
struct Contest {
    changes: Obstacles,
    /// The removals of all ResourceSlices, which have no part in that: the kubelet of this node does so at its start.
    wipes: Obstacles,
    last: Option<Instant>,
    /// The time before which no change is undone, and no removal of all.
    rests: [Option<Instant>; 2],
}

impl Contest {
    /// Notes a foreign change that is undone now.
    fn note(&mut self, line: &str, is_wipe: bool, now: Instant) {
        if self.last.is_some_and(|last| now - last > QUIET) {
            self.changes.are_over();
            self.wipes.are_over();
        }
        self.last = Some(now);
        let of_kind = match is_wipe {
            true => &mut self.wipes,
            false => &mut self.changes,
        };
        if of_kind.is_new(line) {
            tracing::warn!("{line}");
        }
        if is_wipe {
            self.rests[1] = Some(now + WIPES);
        } else if self.changes.tries() > AT_ONCE {
            self.rests[0] = Some(now + self.changes.pause());
        }
    }

    /// Returns the earliest time of the next write.
    fn rest(&self, is_wiped: bool) -> Option<Instant> {
        self.rests[usize::from(is_wiped)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restores_a_wiped_list_at_once() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        for _ in 0..10 {
            contest.note("changed", false, now);
        }
        assert!(contest.rest(false).unwrap() > now + Duration::from_secs(20));
        assert_eq!(contest.rest(true), None);
        for _ in 0..10 {
            contest.note("removed", true, now);
        }
        assert_eq!(contest.rest(true), Some(now + WIPES));
    }

    #[test]
    fn slows_down_repeated_changes() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        for _ in 0..AT_ONCE {
            contest.note("changed", false, now);
            assert_eq!(contest.rest(false), None);
        }
        contest.note("changed", false, now);
        let rest = contest.rest(false).unwrap();
        assert!(rest > now + Duration::from_secs(5));
        contest.note("changed", false, now + QUIET * 2);
        assert_eq!(contest.rest(false), Some(rest), "the quiet time forgets");
    }
}
