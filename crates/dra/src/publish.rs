//! Keeps the ResourceSlices of this node in the API. Others change and delete them: the kubelet removes all when the
//! driver is away for long, and at its own start.

use crate::api::{Event, Watch, in_time, probe, slices_of};
use crate::driver::NAME as DRIVER;
use crate::memory;
use crate::obstacle::Obstacles;
use crate::resource_slices::objects::{Times, Wanted, keep_times, times};
use crate::resource_slices::pool;
use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use runmig_lease::error::{Context, Result};
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
pub async fn publish(client: Client, node: &str, mut wanted: watch::Receiver<Vec<Wanted>>) {
    // Until then nobody knows which of those that are present are wanted.
    if wanted.changed().await.is_err() {
        return;
    }
    let mut published = Published {
        api: Api::all(client.clone()),
        client: client.clone(),
        node: node.to_owned(),
        is_dropping: false,
        wanted,
        wanted_prints: BTreeMap::new(),
        written: BTreeMap::new(),
        present: BTreeMap::new(),
        contest: Contest::default(),
    };
    published.want();
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
            told = published.wanted.changed() => match told {
                Ok(()) => {
                    published.want();
                    due = Some(Instant::now());
                }
                Err(_) => return,
            },
            () = tokio::time::sleep_until(at), if due.is_some() => {
                let corrected = published.correct().await;
                memory::give_back();
                match corrected {
                Ok(()) => {
                    if obstacles.are_over() {
                        tracing::info!("the ResourceSlices of this node are in place again");
                    }
                    next_try = Instant::now();
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
}

struct Published {
    api: Api<ResourceSlice>,
    client: Client,
    node: String,
    /// Says that the API server dropped the counters of a ResourceSlice, and that none is there since.
    is_dropping: bool,
    /// The one copy of the ResourceSlices in this process.
    wanted: watch::Receiver<Vec<Wanted>>,
    wanted_prints: BTreeMap<String, Print>,
    /// The ResourceSlices that this process wrote, each in its own spelling and in the API server's.
    written: BTreeMap<String, [Print; 2]>,
    present: BTreeMap<String, Present>,
    contest: Contest,
}

/// The fingerprint of a ResourceSlice's content. The content itself takes a hundred times the memory.
type Print = [u8; 32];

fn print(text: &str) -> Print {
    Sha256::digest(text).into()
}

/// A ResourceSlice in the API.
struct Present {
    version: Option<String>,
    print: Print,
    times: Times,
    pool: String,
    /// The other program that wrote it last, as it calls itself.
    writer: Option<String>,
}

impl Present {
    fn of(slice: &ResourceSlice) -> Present {
        Present {
            version: slice.resource_version(),
            print: print(&serde_json::to_string(&slice.spec).unwrap_or_default()),
            times: times(slice),
            pool: slice.spec.pool.name.clone(),
            writer: writer(slice),
        }
    }

    /// Returns the other program that wrote it last, in words.
    fn writer(&self) -> String {
        match &self.writer {
            Some(manager) => format!("another program ({manager})"),
            None => "another program".to_owned(),
        }
    }

    /// Returns the version, a number that only grows.
    fn number(&self) -> Option<u64> {
        self.version.as_ref()?.parse().ok()
    }
}

impl Published {
    /// Notes which ResourceSlices are wanted.
    fn want(&mut self) {
        let wanted = self.wanted.borrow_and_update();
        self.wanted_prints = { wanted.iter() }
            .map(|slice| (slice.name.clone(), print(&slice.text)))
            .collect();
    }

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

    /// Returns whether a later version of a ResourceSlice is known.
    fn is_past(&self, slice: &ResourceSlice) -> bool {
        let told = slice
            .resource_version()
            .and_then(|version| version.parse::<u64>().ok());
        let known = self
            .present
            .get(&slice.name_any())
            .and_then(Present::number);
        matches!((told, known), (Some(told), Some(known)) if told < known)
    }

    /// Returns a ResourceSlice that is wanted, and the fingerprint of its text.
    fn read(&self, name: &str) -> Result<Option<(ResourceSlice, Print)>> {
        let all = self.wanted.borrow();
        let Some(wanted) = all.iter().find(|slice| slice.name == name) else {
            return Ok(None);
        };
        let slice = serde_json::from_str(&wanted.text);
        let slice = slice.context(|| format!("read ResourceSlice {name}"))?;
        Ok(Some((slice, print(&wanted.text))))
    }

    fn is_right(&self) -> bool {
        self.present.len() == self.wanted_prints.len()
            && self.wanted_prints.keys().all(|name| self.stands(name))
    }

    /// Returns whether a wanted ResourceSlice is present as this process wrote it.
    fn stands(&self, name: &str) -> bool {
        let present = self.present.get(name).map(|present| &present.print);
        { self.written.get(name) }.is_some_and(|[ours, theirs]| {
            self.wanted_prints.get(name) == Some(ours) && present == Some(theirs)
        })
    }

    /// Returns whether none of the ResourceSlices is left. A kubelet that starts removes all.
    fn is_wiped(&self) -> bool {
        let mut wanted = self.wanted_prints.keys();
        self.present.is_empty() && wanted.all(|name| self.written.contains_key(name))
    }

    /// Returns the changes that others have made, in words.
    fn foreign_changes(&self) -> Option<String> {
        let changed = self.wanted_prints.iter().find_map(|(name, wanted)| {
            let [ours, theirs] = self.written.get(name)?;
            match self.present.get(name) {
                _ if ours != wanted => None,
                None => Some(format!(
                    "ResourceSlice {name} is written again: another program has deleted it"
                )),
                Some(present) if present.print == *theirs => None,
                Some(present) => Some(format!(
                    "ResourceSlice {name} is written again: {} has changed it",
                    present.writer()
                )),
            }
        });
        let pool = pool(&self.node);
        let added = self.present.iter().find(|(name, present)| {
            let is_of_pool = present.pool == pool;
            // A process before this one may have left some of the pool.
            !self.wanted_prints.contains_key(*name)
                && !self.written.contains_key(*name)
                && (!is_of_pool || !self.written.is_empty())
        });
        changed.or_else(|| {
            added.map(|(name, added)| {
                format!(
                    "ResourceSlice {name} of pool {} is removed: {} published it for this node under {DRIVER}",
                    added.pool,
                    added.writer()
                )
            })
        })
    }

    /// Writes what is missing or different, and removes what nobody wants.
    async fn correct(&mut self) -> Result<()> {
        if self.is_dropping {
            if !probe::keeps_counters(&self.client, &self.node).await? {
                return Err(probe::without_counters());
            }
            self.is_dropping = false;
        }
        self.want();
        if let Some(change) = self.foreign_changes() {
            let is_wiped = self.is_wiped();
            self.contest.note(&change, is_wiped, Instant::now());
        }
        let order: Vec<String> = {
            let wanted = self.wanted.borrow();
            wanted.iter().map(|slice| slice.name.clone()).collect()
        };
        for name in order {
            if self.stands(&name) {
                continue;
            }
            let Some((mut slice, ours)) = self.read(&name)? else {
                continue;
            };
            let write = PostParams {
                field_manager: Some(OWNER.to_owned()),
                ..PostParams::default()
            };
            let present = self.present.get(&name);
            let counts = has_counters(&slice.spec);
            if let Some(present) = present {
                keep_times(&mut slice, &present.times);
            }
            slice.metadata.resource_version = present.and_then(|present| present.version.clone());
            let written = match present {
                Some(_) => in_time(self.api.replace(&name, &write, &slice)).await,
                None => in_time(self.api.create(&write, &slice)).await,
            };
            let written = written.context(|| format!("write ResourceSlice {name}"))?;
            if counts && !has_counters(&written.spec) {
                // Without counters the scheduler gives out places that overlap.
                self.is_dropping = true;
                self.present.insert(name, Present::of(&written));
                self.remove(|_| true).await?;
                self.written.clear();
                return Err(probe::without_counters());
            }
            tracing::info!("ResourceSlice {name} is in place");
            let present = Present::of(&written);
            self.written.insert(name.clone(), [ours, present.print]);
            self.present.insert(name, present);
        }
        let wanted = self.wanted_prints.clone();
        self.remove(|name| !wanted.contains_key(name)).await
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
fn writer(slice: &ResourceSlice) -> Option<String> {
    let fields = slice.metadata.managed_fields.iter().flatten();
    let others = fields.filter(|entry| entry.manager.as_deref() != Some(OWNER));
    let last = others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    last.and_then(|entry| entry.manager.clone())
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
