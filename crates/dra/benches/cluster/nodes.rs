//! The nodes of a cell: for each a node object, a simulated machine, and the publisher of `runmig-dra`. A watch on all
//! claims takes the place of the kubelets: it tells a node its promises.

use super::layouts::Layout;
use crate::node::Node;
use crate::packing::world::Random;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use nvml_sim::engine::Model;
use runmig_dra::publish::publish;
use runmig_dra::resource_slices::objects::Wanted;
use runmig_dra::resource_slices::{DeviceName, Published, pool};
use serde_json::json;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// The GPUs of a node.
const GPUS: usize = 8;
/// The profile that is a whole GPU.
const WHOLE: &str = "7g.80gb";
/// The time after a change in which more changes come, as in the driver.
const JOIN: Duration = Duration::from_millis(100);

pub struct Nodes {
    layout: Layout,
    all: Vec<Publisher>,
    /// The devices of each claim, by its uid: node and device.
    claims: HashMap<String, Vec<(usize, DeviceName)>>,
    /// Devices that were given out although their place was taken.
    pub overlaps: usize,
    /// Devices that were given out at the moment at which a local slice took their place.
    pub raced: usize,
    /// Whether local slices come and go at present.
    toggles: bool,
}

struct Publisher {
    name: String,
    node: Node,
    published: Published,
    wanted: watch::Sender<Vec<ResourceSlice>>,
}

impl Nodes {
    /// Makes the node objects and publishes their devices.
    pub async fn start(client: &Client, layout: Layout, count: usize) -> Arc<Mutex<Nodes>> {
        let models = vec![Model::find("A100-80GB").expect("a model"); GPUS];
        let mut all = Vec::new();
        for number in 0..count {
            let name = format!("node-{number}");
            object(client, &name).await;
            let (told, seen) = watch::channel(Vec::new());
            let (client, of) = (client.clone(), name.clone());
            tokio::spawn(async move { publish(client, &of, joined(seen)).await });
            all.push(Publisher {
                name,
                node: Node::new(&models),
                published: Published::default(),
                wanted: told,
            });
        }
        let mut nodes = Nodes {
            layout,
            all,
            claims: HashMap::new(),
            overlaps: 0,
            raced: 0,
            toggles: false,
        };
        (0..count).for_each(|node| nodes.tell(node));
        let nodes = Arc::new(Mutex::new(nodes));
        tokio::spawn(follow(client.clone(), nodes.clone()));
        nodes
    }

    /// The number of ResourceSlices of all nodes.
    pub fn slices(&self) -> usize {
        self.all
            .iter()
            .map(|publisher| publisher.wanted.borrow().len())
            .sum()
    }

    pub fn has_room(&self, profile: &str) -> bool {
        self.all
            .iter()
            .any(|publisher| publisher.node.has_room(profile))
    }

    /// Fills each node with local slices up to this part of its memory.
    pub fn fill(&mut self, part: f64, random: &mut Random) {
        for node in 0..self.all.len() {
            let publisher = &mut self.all[node];
            while publisher.node.memory_used() < part {
                let profile = super::load::draw(random);
                let Some(device) = publisher.node.choice(profile) else {
                    break;
                };
                publisher.node.take(&device);
            }
            self.tell(node);
        }
    }

    /// Makes a local slice of the last GPU of each node, or removes it again. So the counters of each node change.
    pub fn toggle(&mut self, is_there: bool) {
        self.toggles = true;
        for node in 0..self.all.len() {
            let last = self.last_gpu(node);
            let node_of = &mut self.all[node].node;
            if is_there {
                node_of.try_take(&last);
            } else {
                node_of.give_back();
            }
            self.tell(node);
        }
    }

    /// Returns the device that is the whole of a node's last GPU.
    fn last_gpu(&self, node: usize) -> DeviceName {
        let gpus = self.all[node].published.gpus.iter();
        let names = gpus.flat_map(|gpu| &gpu.offers).map(|offer| &offer.name);
        let whole = names.filter(|name| *WHOLE == *name.profile());
        let last = whole.max_by_key(|name| name.to_string());
        last.expect("every GPU has it").clone()
    }

    /// Removes all local slices.
    pub fn clear(&mut self) {
        self.toggles = false;
        for node in 0..self.all.len() {
            self.all[node].node.give_back();
            self.tell(node);
        }
    }

    fn tell(&mut self, node: usize) {
        let publisher = &mut self.all[node];
        let layout = publisher
            .node
            .lay_out(&publisher.name, &publisher.published);
        let slices = self.layout.arrange(&publisher.name, &layout.slices);
        publisher.published = layout.published;
        publisher.wanted.send_if_modified(|last| {
            let is_new = *last != slices;
            *last = slices;
            is_new
        });
    }

    fn see(&mut self, uid: &str, devices: Vec<(usize, DeviceName)>) {
        let before = self.claims.remove(uid).unwrap_or_default();
        if before == devices {
            self.claims.insert(uid.to_owned(), before);
            return;
        }
        let mut touched: Vec<usize> = Vec::new();
        for (node, device) in &before {
            self.all[*node].node.free(device);
            touched.push(*node);
        }
        let mut held = Vec::new();
        for (node, device) in devices {
            touched.push(node);
            let there = &mut self.all[node].node;
            if there.try_allocate(&device) {
                held.push((node, device));
                continue;
            }
            // Without the local slices the place is free, unless a claim has it.
            if self.toggles {
                there.give_back();
            }
            match self.toggles && there.try_allocate(&device) {
                true => {
                    self.raced += 1;
                    held.push((node, device));
                }
                false => self.overlaps += 1,
            }
        }
        if !held.is_empty() {
            self.claims.insert(uid.to_owned(), held);
        }
        touched.sort_unstable();
        touched.dedup();
        touched.into_iter().for_each(|node| self.tell(node));
    }

    fn devices(&self, claim: &ResourceClaim) -> Vec<(usize, DeviceName)> {
        let status = claim
            .status
            .as_ref()
            .and_then(|status| status.allocation.as_ref());
        let devices = status.and_then(|allocation| allocation.devices.as_ref());
        let results = devices.and_then(|devices| devices.results.as_ref());
        let found = results.into_iter().flatten().filter_map(|result| {
            // A pool per GPU has the node's name at its front.
            let of_node = result.pool.split('/').next()?;
            let node = self
                .all
                .iter()
                .position(|publisher| pool(&publisher.name) == of_node)?;
            Some((node, result.device.parse().ok()?))
        });
        found.collect()
    }
}

/// Joins changes as the driver's looks at its node do.
fn joined(mut seen: watch::Receiver<Vec<ResourceSlice>>) -> watch::Receiver<Vec<Wanted>> {
    let (told, wanted) = watch::channel(Vec::new());
    tokio::spawn(async move {
        while seen.changed().await.is_ok() {
            tokio::time::sleep(JOIN).await;
            let slices = seen.borrow_and_update().clone();
            told.send_replace(slices.iter().map(Wanted::of).collect());
        }
    });
    wanted
}

async fn follow(client: Client, nodes: Arc<Mutex<Nodes>>) {
    let claims: Api<ResourceClaim> = Api::all(client);
    let mut changes = pin!(watcher(claims, watcher::Config::default()).default_backoff());
    while let Some(change) = changes.next().await {
        let mut nodes = nodes.lock().expect("no panic");
        match change {
            Ok(Event::Apply(claim) | Event::InitApply(claim)) => {
                let devices = nodes.devices(&claim);
                nodes.see(&claim.metadata.uid.unwrap_or_default(), devices);
            }
            Ok(Event::Delete(claim)) => {
                nodes.see(&claim.metadata.uid.unwrap_or_default(), Vec::new())
            }
            _ => {}
        }
    }
}

async fn object(client: &Client, name: &str) {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let object: NodeObject = serde_json::from_value(object).expect("a node");
    nodes
        .create(&PostParams::default(), &object)
        .await
        .expect("a node");
    let amounts = json!({"cpu": "256", "memory": "2Ti", "pods": "1000"});
    let status = json!({"status": {
        "allocatable": amounts, "capacity": amounts,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }});
    let patch = Patch::Merge(status);
    nodes
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .expect("a status");
}
