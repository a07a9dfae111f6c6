//! A claim on every place: the driver's memory, and its work while nothing happens.

use super::cluster::Cluster;
use super::figures::Figure;
use super::host::Host;
use futures::future::join_all;
use std::fs;
use std::time::{Duration, Instant};

const MIB: f64 = 1024.0;
/// The time between two looks at the driver's session with NVML.
const LOOK: Duration = Duration::from_millis(50);

pub async fn run(cluster: &Cluster, host: &Host, idle: Duration) -> Vec<Figure> {
    let mut wanted = Vec::new();
    for (place, device) in host.devices.iter().enumerate() {
        let name = format!("many-{place}");
        wanted.push(cluster.pod(&name, &host.name, device).await);
    }
    for some in wanted.chunks(super::GPUS) {
        join_all(some.iter().map(|one| cluster.bind(one))).await;
        join_all(some.iter().map(|one| host.prepare(&one.claim))).await;
    }
    host.rest().await;
    // The simulated driver's library is on a tmpfs, and stays loaded.
    let resident = memory(host, "VmRSS") - memory(host, "RssShmem");
    let mut figures = vec![
        Figure::new(
            "resident memory without the GPU driver, 8 GPUs and 56 claims",
            resident,
            12.0,
            "MiB",
        ),
        Figure::without_bar(
            "the program's own pages among these",
            memory(host, "RssAnon"),
            "MiB",
        ),
        Figure::without_bar(
            "pages of the program's file and the C library among these",
            memory(host, "RssFile"),
            "MiB",
        ),
    ];
    figures.extend(quiet(cluster, host, idle).await);
    for some in wanted.chunks(super::GPUS) {
        join_all(some.iter().map(|one| host.unprepare(&one.claim))).await;
    }
    for one in &wanted {
        cluster.delete(one).await;
    }
    host.rest().await;
    figures
}

async fn quiet(cluster: &Cluster, host: &Host, idle: Duration) -> Vec<Figure> {
    let written = |cluster: &Cluster| cluster.writes().values().sum::<usize>();
    // The reports of the claims come after the answers.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (writes, spent, begun) = (written(cluster), cpu(host), Instant::now());
    let (mut looks, mut open) = (0, 0);
    while begun.elapsed() < idle {
        tokio::time::sleep(LOOK).await;
        looks += 1;
        open += usize::from(host.has_session());
    }
    let part = 100.0 / begun.elapsed().as_secs_f64();
    let spent = (cpu(host) - spent).as_secs_f64() * part;
    let open = 100.0 * open as f64 / f64::from(looks);
    let name = |what: &str| format!("{what}, idle for {} s with 56 claims", idle.as_secs());
    vec![
        Figure::new(
            &name("API writes"),
            (written(cluster) - writes) as f64,
            0.0,
            "",
        ),
        Figure::new(&name("part of a core"), spent, 0.2, "%"),
        Figure::without_bar(&name("time with an NVML session"), open, "%"),
    ]
}

/// Returns a value of the driver's status, in MiB.
fn memory(host: &Host, what: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", host.process()));
    let status = status.expect("the driver runs");
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.expect("a number") / MIB
}

/// Returns the driver's CPU time.
fn cpu(host: &Host) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", host.process()));
    let stat = stat.expect("the driver runs");
    let (_, after) = stat.rsplit_once(") ").expect("a name in parentheses");
    let fields: Vec<&str> = after.split(' ').collect();
    // utime and stime, in 1/100 s
    let ticks = [11, 12].map(|at| fields[at].parse::<u64>().expect("a number"));
    Duration::from_millis(10 * ticks.iter().sum::<u64>())
}
