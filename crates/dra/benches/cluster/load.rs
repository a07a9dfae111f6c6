//! The pods of a cell, and the time from the creation of each to its binding.

use super::control_plane::{ControlPlane, until};
use super::figures::Cell;
use super::layouts::Layout;
use super::nodes::Nodes;
use crate::packing::world::Random;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::json;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[path = "../../tests/support/class_names.rs"]
mod class_names;
use class_names::{class_name, extended_resource};

/// The profiles of the load, each with its weight.
const PROFILES: [(&str, u64); 4] = [
    ("1g.10gb", 4),
    ("2g.20gb", 2),
    ("3g.40gb", 2),
    ("4g.40gb", 1),
];
/// The pods that come one by one at first, and those of the burst.
const SINGLE: usize = 12;
const BURST: usize = 50;
/// The pods that run at once meanwhile.
const LIVE: usize = 10;
/// The time between two changes of every node's counters, while they change all the time.
const REWRITE: Duration = Duration::from_millis(200);

/// The extent of a load.
#[derive(Clone, Copy)]
pub struct Extent {
    /// The pods that come while others go, at each fill.
    pub churn: usize,
    /// The time for all pods.
    pub limit: Duration,
    /// The time after which a pod counts as pending for good.
    pub pending: Duration,
}

/// Draws a profile of the load.
pub fn draw(random: &mut Random) -> &'static str {
    let all: u64 = PROFILES.iter().map(|(_, weight)| weight).sum();
    let mut at = random.next() % all;
    let found = PROFILES.iter().find(|(_, weight)| {
        let here = at < *weight;
        at = at.saturating_sub(*weight);
        here
    });
    found.expect("the weights add up").0
}

/// The bound pods, by name, each with the moment.
type Bound = Arc<Mutex<HashMap<String, Instant>>>;

struct Load<'p> {
    pods: Api<Pod>,
    nodes: Arc<Mutex<Nodes>>,
    bound: Bound,
    random: Random,
    number: usize,
    pending_with_room: usize,
    extent: Extent,
    end: Instant,
    plane: &'p ControlPlane,
}

/// Runs the load on nodes with a layout.
pub async fn run(
    plane: &ControlPlane,
    layout: Layout,
    count: usize,
    seed: u64,
    extent: Extent,
) -> Cell {
    let client = &plane.client;
    classes(client).await;
    let nodes = Nodes::start(client, layout, count).await;
    let writes = Arc::new(AtomicUsize::new(0));
    tokio::spawn(writes_of_slices(client.clone(), writes.clone()));
    let bound = Bound::default();
    tokio::spawn(bindings(client.clone(), bound.clone()));
    let published = nodes.lock().expect("no panic").slices();
    until("all ResourceSlices are in the API", async || {
        writes.load(Ordering::Relaxed) >= published
    })
    .await;
    let mut load = Load {
        pods: Api::default_namespaced(client.clone()),
        nodes,
        bound,
        random: Random(seed),
        number: 0,
        pending_with_room: 0,
        extent,
        end: Instant::now() + extent.limit,
        plane,
    };
    // The scheduler's first pod finds its caches empty.
    load.one().await;
    let refused_before = unschedulable(&plane.metrics().await.unwrap_or_default());
    let writes_before = writes.load(Ordering::Relaxed);
    let mut single = Vec::new();
    for _ in 0..SINGLE {
        single.extend(load.one().await.1);
    }
    let (bound, took) = load.burst().await;
    load.clear().await;
    settled(&writes).await;
    let written = writes.load(Ordering::Relaxed);
    let rewritten = load.burst_while_rewritten().await;
    // Until here every pod found room.
    let refused = unschedulable(&plane.metrics().await.unwrap_or_default()) - refused_before;
    load.clear().await;
    settled(&writes).await;
    let rewrites = writes.load(Ordering::Relaxed) - written;
    let mut churned = Vec::new();
    for part in [0.7, 0.9] {
        load.clear().await;
        { load.nodes.lock().expect("no panic") }.fill(part, &mut Random(seed));
        settled(&writes).await;
        churned.extend(load.churn().await);
    }
    let pods = load.number - 1 - BURST;
    let (overlaps, raced) = {
        let nodes = load.nodes.lock().expect("no panic");
        (nodes.overlaps, nodes.raced)
    };
    Cell {
        layout,
        nodes: count,
        single,
        burst: bound as f64 / took.as_secs_f64(),
        rewritten,
        refused,
        churned,
        filter: filter_time(&plane.metrics().await.unwrap_or_default()),
        attempts: attempts(&plane.metrics().await.unwrap_or_default()) / load.number as f64,
        writes: (writes.load(Ordering::Relaxed) - writes_before - rewrites) as f64 / pods as f64,
        resident: plane.resident(),
        overlaps,
        raced,
        pending_with_room: load.pending_with_room,
        is_cut: Instant::now() > load.end,
    }
}

impl Load<'_> {
    fn is_over(&self) -> bool {
        Instant::now() > self.end
    }

    async fn create(&mut self) -> (String, &'static str, Instant) {
        let profile = draw(&mut self.random);
        self.number += 1;
        let name = format!("pod-{}", self.number);
        let profile_name = profile.parse().expect("a profile");
        let resource = extended_resource(&profile_name);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{
                "name": "main", "image": "none", "resources": {"limits": {resource: "1"}},
            }]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let begun = Instant::now();
        self.pods
            .create(&PostParams::default(), &pod)
            .await
            .expect("a pod");
        (name, profile, begun)
    }

    /// Waits for the binding of a pod. None if it stays pending.
    async fn wait(&self, name: &str, begun: Instant, patience: Duration) -> Option<Duration> {
        while begun.elapsed() < patience {
            if let Some(at) = self.bound.lock().expect("no panic").get(name) {
                return Some(at.duration_since(begun));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        None
    }

    /// Creates a pod and waits for its binding.
    async fn one(&mut self) -> (String, Option<Duration>) {
        let (name, profile, begun) = self.create().await;
        let took = self.wait(&name, begun, self.extent.pending).await;
        if took.is_none() && self.nodes.lock().expect("no panic").has_room(profile) {
            self.pending_with_room += 1;
        }
        (name, took)
    }

    /// Creates many pods at once. Returns the number that was bound, and the time for all of them.
    async fn burst(&mut self) -> (usize, Duration) {
        let begun = Instant::now();
        let mut names = Vec::new();
        for _ in 0..BURST {
            names.push(self.create().await);
        }
        let mut last = begun;
        let mut count = 0;
        for (name, profile, _) in names {
            let patience = self
                .end
                .saturating_duration_since(begun)
                .max(self.extent.pending);
            match self.wait(&name, begun, patience).await {
                Some(took) => {
                    count += 1;
                    last = last.max(begun + took);
                }
                None => {
                    let has_room = self.nodes.lock().expect("no panic").has_room(profile);
                    self.pending_with_room += usize::from(has_room && !self.is_over());
                }
            }
        }
        (count, last - begun)
    }

    /// Creates many pods at once, while the counters of every node change all the time. Returns the number that was bound.
    async fn burst_while_rewritten(&mut self) -> usize {
        let nodes = self.nodes.clone();
        // A burst leaves this GPU alone, since others have room.
        let rewriting = tokio::spawn(async move {
            let mut is_there = true;
            loop {
                nodes.lock().expect("no panic").toggle(is_there);
                is_there = !is_there;
                tokio::time::sleep(REWRITE).await;
            }
        });
        let (bound, _) = self.burst().await;
        rewriting.abort();
        let _ = rewriting.await;
        bound
    }

    /// Pods that come while earlier ones go.
    async fn churn(&mut self) -> Vec<Duration> {
        let mut live: Vec<String> = Vec::new();
        let mut times = Vec::new();
        for _ in 0..self.extent.churn {
            if self.is_over() {
                break;
            }
            if live.len() == LIVE {
                let gone = live.swap_remove(self.random.next() as usize % LIVE);
                self.delete(&gone).await;
            }
            // One for which no node has room would only wait.
            let profile = draw(&mut Random(self.random.0));
            if !self.nodes.lock().expect("no panic").has_room(profile) {
                self.random.next();
                continue;
            }
            let (name, took) = self.one().await;
            times.extend(took);
            live.push(name);
        }
        times
    }

    async fn delete(&self, name: &str) {
        let now = DeleteParams::default().grace_period(0);
        self.pods.delete(name, &now).await.expect("it was created");
    }

    /// Deletes all pods and local slices, and waits until the claims are gone.
    async fn clear(&mut self) {
        let now = DeleteParams::default().grace_period(0);
        self.pods
            .delete_collection(&now, &Default::default())
            .await
            .expect("pods");
        let claims: Api<k8s_openapi::api::resource::v1::ResourceClaim> =
            Api::all(self.plane.client.clone());
        until("all claims are gone", async || {
            let list = claims.list(&Default::default()).await;
            list.is_ok_and(|list| list.items.is_empty())
        })
        .await;
        self.nodes.lock().expect("no panic").clear();
    }
}

async fn classes(client: &Client) {
    let classes: Api<DeviceClass> = Api::all(client.clone());
    for (profile, _) in PROFILES {
        let name = profile.parse().expect("a profile");
        let expression = format!(
            "device.driver == \"gpu.runmig.dev\" && device.attributes[\"gpu.runmig.dev\"].profile == \"{profile}\""
        );
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": class_name(&name)},
            "spec": {
                "extendedResourceName": extended_resource(&name),
                "selectors": [{"cel": {"expression": expression}}],
            },
        });
        let class: DeviceClass = serde_json::from_value(class).expect("a class");
        classes
            .create(&PostParams::default(), &class)
            .await
            .expect("a class");
    }
}

async fn bindings(client: Client, bound: Bound) {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut changes = pin!(watcher(pods, watcher::Config::default()).default_backoff());
    while let Some(change) = changes.next().await {
        if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = change
            && pod.spec.and_then(|spec| spec.node_name).is_some()
        {
            let name = pod.metadata.name.unwrap_or_default();
            let now = Instant::now();
            bound.lock().expect("no panic").entry(name).or_insert(now);
        }
    }
}

/// Waits until the publishers have written what they know: here no local create is faster than the counters.
async fn settled(writes: &AtomicUsize) {
    let mut last = (writes.load(Ordering::Relaxed), Instant::now());
    while last.1.elapsed() < Duration::from_secs(1) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = writes.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
}

async fn writes_of_slices(client: Client, writes: Arc<AtomicUsize>) {
    let slices: Api<ResourceSlice> = Api::all(client);
    let mut changes = pin!(watcher(slices, watcher::Config::default()).default_backoff());
    while let Some(change) = changes.next().await {
        if let Ok(Event::Apply(_) | Event::InitApply(_)) = change {
            writes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the sum of a metric's values whose lines have a text.
fn sum(metrics: &str, name: &str, with: &str) -> f64 {
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(with));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// Returns the scheduler's mean time for Filter, in ms a pod.
fn filter_time(metrics: &str) -> f64 {
    let name = "scheduler_framework_extension_point_duration_seconds";
    let with = "extension_point=\"Filter\"";
    let count = sum(metrics, &format!("{name}_count"), with);
    1e3 * sum(metrics, &format!("{name}_sum"), with) / count.max(1.0)
}

/// Returns the scheduler's attempts after which a pod had no node. Each is an event FailedScheduling.
fn unschedulable(metrics: &str) -> usize {
    let name = "scheduler_schedule_attempts_total";
    sum(metrics, name, "result=\"unschedulable\"") as usize
        + sum(metrics, name, "result=\"error\"") as usize
}

fn attempts(metrics: &str) -> f64 {
    sum(metrics, "scheduler_schedule_attempts_total", "")
}
