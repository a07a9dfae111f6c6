//! A hundred pods at once: the driver's writes to the API for each.

use super::cluster::{Cluster, Wanted};
use super::figures::Figure;
use super::host::Host;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::time::Duration;

const PODS: usize = 100;

pub async fn run(cluster: &Cluster, host: &Host) -> Vec<Figure> {
    let mut wanted = Vec::new();
    for (pod, device) in host.devices.iter().take(PODS).enumerate() {
        let name = format!("burst-{pod}");
        wanted.push(cluster.pod(&name, &host.name, device).await);
    }
    let before = cluster.writes();
    join_all(wanted.iter().map(|one| start(cluster, host, one))).await;
    let made = settled(cluster, host, &before).await;
    join_all(wanted.iter().map(|one| host.unprepare(&one.claim))).await;
    for one in &wanted {
        cluster.delete(one).await;
    }
    let all = settled(cluster, host, &before).await;
    let each = |writes: &BTreeMap<String, usize>, of: &str| {
        let now = writes.get(of).copied().unwrap_or(0);
        let then = before.get(of).copied().unwrap_or(0);
        (now - then) as f64 / PODS as f64
    };
    let name = |what: &str| format!("{what} a pod, burst of {PODS}");
    let slices = "resourceslices";
    vec![
        Figure::new(&name("ResourceSlice writes"), each(&all, slices), 6.0, ""),
        Figure::without_bar(
            &name("ResourceSlice writes at the start"),
            each(&made, slices),
            "",
        ),
        Figure::without_bar(
            &name("writes of a claim's status"),
            each(&all, "resourceclaims"),
            "",
        ),
        Figure::without_bar(&name("events"), each(&all, "events"), ""),
    ]
}

/// Binds a pod, and prepares its claim as soon as the kubelet would.
async fn start(cluster: &Cluster, host: &Host, one: &Wanted) {
    cluster.bind(one).await;
    host.prepare(&one.claim).await;
}

/// Waits until the driver writes no more. Returns its writes.
async fn settled(
    cluster: &Cluster,
    host: &Host,
    before: &BTreeMap<String, usize>,
) -> BTreeMap<String, usize> {
    let mut last = before.clone();
    loop {
        host.rest().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = cluster.writes();
        if now == last {
            return now;
        }
        last = now;
    }
}
