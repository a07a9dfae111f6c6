//! The cost of the devices' layout for a real scheduler: etcd, API server, scheduler and controller manager on
//! loopback, node objects with simulated GPUs, and each node's publisher in this process. `scripts/bench cluster` runs
//! it and writes the table of docs/dra-scheduling.md.

#[path = "cluster/mod.rs"]
mod cluster;
#[path = "../../../benches/packing/marks.rs"]
mod marks;
// The other benchmarks use the rest.
#[allow(dead_code)]
#[path = "scheduler/node.rs"]
mod node;
#[allow(dead_code)]
#[path = "scheduler/order.rs"]
mod order;
#[allow(dead_code, unused_imports)]
#[path = "../../../benches/packing/mod.rs"]
mod packing;

use cluster::{Cell, Extent, LAYOUTS, measure, table};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time for all cells. A cell that would begin later is left out.
const LIMIT: Duration = Duration::from_secs(12 * 60);
const EXTENT: Extent = Extent {
    churn: 100,
    limit: Duration::from_secs(60),
    pending: Duration::from_secs(10),
};

fn main() {
    let set = |name: &str| std::env::var(name).ok();
    let programs = PathBuf::from(
        set("CLUSTER_PROGRAMS").expect("CLUSTER_PROGRAMS: the folder of kube-scheduler"),
    );
    let nodes = set("CLUSTER_NODES").unwrap_or_else(|| "10,25".to_owned());
    let nodes = nodes.split(',').map(|n| n.parse().expect("a number"));
    let seed = set("CLUSTER_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let begun = Instant::now();
    let mut cells: Vec<Cell> = Vec::new();
    for count in nodes {
        for layout in LAYOUTS {
            if begun.elapsed() > LIMIT {
                println!(
                    "stopped before {count} nodes, {}: 12 minutes are over",
                    layout.name()
                );
                continue;
            }
            let cell = measure(&programs, layout, count, seed, EXTENT);
            println!("{}", cell.line());
            cells.push(cell);
        }
    }
    let text = table(&cells);
    print!("\n{text}");
    if let Some(docs) = set("CLUSTER_DOCS") {
        marks::replace(
            &PathBuf::from(docs).join("dra-scheduling.md"),
            "scripts/bench",
            "cluster",
            &text,
        );
    }
    let wrong: usize = cells.iter().map(Cell::wrong).sum();
    assert_eq!(
        wrong, 0,
        "overlaps, or pods that find no room although a node has some"
    );
}
