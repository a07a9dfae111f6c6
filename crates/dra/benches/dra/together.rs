//! A claim on each GPU at once, where every change of a GPU takes half a second.

use super::cluster::{Cluster, Wanted};
use super::figures::{Figure, percentile};
use super::host::Host;
use futures::future::join_all;
use std::time::{Duration, Instant};

const CHANGES: [&str; 4] = [
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
];
const ROUNDS: usize = 3;

pub async fn run(cluster: &Cluster, host: &Host) -> Vec<Figure> {
    for call in CHANGES {
        host.sim("fault", &["--call", call, "--takes", "500ms"]);
    }
    let places = host.devices.len() / super::GPUS;
    let mut wanted = Vec::new();
    for (gpu, device) in host.devices.iter().step_by(places).enumerate() {
        let name = format!("together-{gpu}");
        wanted.push(cluster.pod(&name, &host.name, device).await);
    }
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(made_and_gone(host, &wanted[..1]).await);
        all.push(made_and_gone(host, &wanted).await);
    }
    host.sim("fault", &["--clear"]);
    for wanted in &wanted {
        cluster.delete(wanted).await;
    }
    host.rest().await;
    let ratio = |part: fn(&[Duration; 2]) -> Duration| {
        let median = |rounds: &[[Duration; 2]]| {
            let times: Vec<Duration> = rounds.iter().map(part).collect();
            percentile(&times, 50)
        };
        median(&all) / median(&one)
    };
    let what = "8 claims on 8 GPUs at once over one, 500 ms a change";
    vec![
        Figure::new(&format!("Prepare of {what}"), ratio(|t| t[0]), 1.25, ""),
        Figure::new(&format!("Unprepare of {what}"), ratio(|t| t[1]), 1.25, ""),
    ]
}

async fn made_and_gone(host: &Host, wanted: &[Wanted]) -> [Duration; 2] {
    host.rest().await;
    let begun = Instant::now();
    join_all(wanted.iter().map(|one| host.prepare(&one.claim))).await;
    let made = begun.elapsed();
    host.rest().await;
    let begun = Instant::now();
    join_all(wanted.iter().map(|one| host.unprepare(&one.claim))).await;
    [made, begun.elapsed()]
}
