//! Local slices that come and go, until the counters in the API tell it.

use super::cluster::Cluster;
use super::figures::Figure;
use super::host::Host;
use futures::StreamExt;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use runmig_lease::config::Config;
use runmig_lease::model::Cgroup;
use runmig_lease::store::{Container, Held, Key};
use runmig_lease::{Leases, NoBundles, Patience, request};
use std::collections::HashMap;
use std::pin::pin;
use std::time::Instant;
use tokio::sync::watch;

pub async fn run(cluster: &Cluster, host: &Host, rounds: usize) -> Vec<Figure> {
    let (told, mut room) = watch::channel(0);
    let following = tokio::spawn(follow(cluster.client.clone(), host.name.clone(), told));
    let full = *room.wait_for(|sum| *sum > 0).await.expect("the watch");
    let (mut made, mut gone) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begun = Instant::now();
        let held = acquire(&host.config);
        room.wait_for(|sum| *sum < full).await.expect("the watch");
        made.push(begun.elapsed());
        host.rest().await;
        let begun = Instant::now();
        release(&host.config, &held);
        room.wait_for(|sum| *sum == full).await.expect("the watch");
        gone.push(begun.elapsed());
        host.rest().await;
    }
    following.abort();
    let (came, went) = (
        "begin of a local create to counters in the API",
        "begin of its release to counters in the API",
    );
    vec![
        Figure::of(came, &made, 50, 200.0),
        Figure::of(came, &made, 99, 200.0),
        Figure::of(went, &gone, 50, 200.0),
        Figure::of(went, &gone, 99, 200.0),
    ]
}

/// Makes a slice as a container's create does.
fn acquire(config: &Config) -> Held {
    let leases = Leases::open(config, Box::new(NoBundles)).expect("the ledger");
    let annotations = [(request::SLICE.to_owned(), "1g.10gb".to_owned())];
    let request = request::parse(&annotations).expect("a request");
    let holder = Container {
        key: Key::new("/run/runc".into(), "local".to_owned()),
        ..Container::default()
    };
    let cgroup = Cgroup {
        names: vec!["local".to_owned()],
        path: None,
    };
    let acquired = leases.acquire(holder, &request.expect("a slice"), cgroup);
    acquired.expect("a slice").leases.remove(0)
}

fn release(config: &Config, held: &Held) {
    let leases = Leases::open(config, Box::new(NoBundles)).expect("the ledger");
    let released = leases.release_unless(held, Patience::default(), |_| None);
    released.expect("a release");
}

/// Tells the sum of a node's counters, `memory` left out.
async fn follow(client: Client, node: String, told: watch::Sender<i64>) {
    let slices: Api<ResourceSlice> = Api::all(client);
    let of_node = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut changes = pin!(watcher(slices, of_node).default_backoff());
    let mut sums = HashMap::new();
    while let Some(change) = changes.next().await {
        if let Ok(Event::Apply(slice) | Event::InitApply(slice)) = change {
            sums.insert(slice.name_any(), sum(&slice));
            told.send_replace(sums.values().sum());
        }
    }
}

fn sum(slice: &ResourceSlice) -> i64 {
    let sets = slice.spec.shared_counters.iter().flatten();
    let counters = sets.flat_map(|set| &set.counters);
    let values = counters.filter(|(name, _)| *name != "memory");
    values
        .map(|(_, counter)| counter.value.0.parse::<i64>().unwrap_or(0))
        .sum()
}
