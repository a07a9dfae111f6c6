//! Every policy on every mix, load and cluster, with every seed; means, and the lead with its error.

use super::order::{CLUSTERS, Cluster, Order, POLICIES, Policy};
use super::run::{Count, Run};
use crate::packing::Workloads;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct Settings {
    pub seeds: u64,
    /// On each node and in each run; the first tenth of them is not counted.
    pub arrivals: usize,
    pub threads: usize,
}

/// Accepted requests by count and by memory, in per cent, by seed, and the decisions that differ from `placement`'s.
pub struct Cell {
    policy: Policy,
    cluster: Cluster,
    seeds: Vec<(f64, f64)>,
    differs: u64,
    accepted: u64,
}

pub fn measure(settings: &Settings) -> Vec<Cell> {
    let all = POLICIES
        .iter()
        .flat_map(|policy| CLUSTERS.map(|cluster| (*policy, cluster)));
    let all: Vec<(Policy, Cluster)> = all
        .filter(|(policy, cluster)| policy.runs_on(*cluster))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((policy, cluster)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push(cell(*policy, *cluster, settings));
        }
        done
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..settings.threads).map(|_| scope.spawn(work)).collect();
        { threads.into_iter() }
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

fn cell(policy: Policy, cluster: Cluster, settings: &Settings) -> Cell {
    let workloads = Workloads::read();
    // Its mixes request profiles alone.
    let fleet = &workloads.fleets[0];
    let (mut differs, mut accepted) = (0, 0);
    let mut seed = |seed: u64| {
        let (mut sum, mut runs) = ((0.0, 0.0), 0.0);
        for (mix, number) in fleet.mixes.iter().zip(0..) {
            let kinds = fleet.kinds(mix);
            for load in &workloads.loads {
                let run = Run {
                    fleet,
                    kinds: &kinds,
                    cluster,
                    load: *load,
                    seed: seed * 1_000_003 + number,
                    arrivals: settings.arrivals,
                };
                let count: Count = run.count(policy);
                let part = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
                sum.0 += part(count.accepted, count.asked);
                sum.1 += part(count.memory_accepted, count.memory_asked);
                runs += 1.0;
                differs += count.differs;
                accepted += count.accepted;
            }
        }
        (sum.0 / runs, sum.1 / runs)
    };
    let seeds = (0..settings.seeds).map(&mut seed).collect();
    Cell {
        policy,
        cluster,
        seeds,
        differs,
        accepted,
    }
}

/// The table in Markdown. Errors are of the difference with the same requests, 95 %.
pub fn table(cells: &[Cell], settings: &Settings) -> String {
    let find = |policy: Policy, cluster: Cluster| {
        let mut cells = cells.iter();
        cells.find(|cell| cell.policy == policy && cell.cluster == cluster)
    };
    let mut out = String::from("| order of the devices |");
    for cluster in CLUSTERS {
        write!(out, " {} | lead over NVIDIA's |", cluster.name()).expect("a text");
    }
    out.push_str("\n| --- |");
    out.push_str(&" ---: | ---: |".repeat(CLUSTERS.len()));
    out.push('\n');
    for policy in POLICIES {
        write!(out, "| {} |", policy.name()).expect("a text");
        for cluster in CLUSTERS {
            let base = Policy {
                order: Order::Enumeration,
                ..policy
            };
            match find(policy, cluster).zip(find(base, cluster)) {
                Some((cell, base)) => {
                    let (count, memory) = (mean(cell, |s| s.0), mean(cell, |s| s.1));
                    let lead = match policy.order {
                        Order::Enumeration => "–".to_owned(),
                        _ => lead(cell, base),
                    };
                    write!(out, " {count:.2}, {memory:.2} | {lead} |").expect("a text");
                }
                None => out.push_str(" – | – |"),
            }
        }
        out.push('\n');
    }
    let differs: u64 = { cells.iter() }
        .filter(|cell| cell.policy.order == Order::Ours && cell.policy.burst == 1)
        .map(|cell| cell.differs)
        .sum();
    let decisions: u64 = { cells.iter() }
        .filter(|cell| cell.policy.order == Order::Ours && cell.policy.burst == 1)
        .map(|cell| cell.accepted)
        .sum();
    writeln!(
        out,
        "\nCells are accepted requests by count and by memory, in %, and the lead by memory. Outside of bursts, \
         {differs} of {decisions} decisions with runmig-dra's order differ from `runmig`'s. 8 × A100-80GB a node, 7 mixes × 4 loads × {} \
         seeds × {} requests a node.",
        settings.seeds, settings.arrivals
    )
    .expect("a text");
    out
}

fn mean(cell: &Cell, of: fn(&(f64, f64)) -> f64) -> f64 {
    cell.seeds.iter().map(of).sum::<f64>() / cell.seeds.len() as f64
}

fn lead(cell: &Cell, base: &Cell) -> String {
    let all: Vec<f64> = { cell.seeds.iter().zip(&base.seeds) }
        .map(|(a, b)| a.1 - b.1)
        .collect();
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let spread = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    format!("{mean:+.2} ± {:.2}", 1.96 * (spread / n).sqrt())
}
