//! The benchmark of clusters with ten nodes, cut short: a real scheduler over the ResourceSlices of every node. It
//! gives out no place twice, and finds room wherever some is.

#[allow(dead_code, unused_imports)] // the benchmark uses the rest
#[path = "../../benches/cluster/mod.rs"]
mod cluster;
#[allow(dead_code)]
#[path = "../../benches/scheduler/node.rs"]
mod node;
#[allow(dead_code)]
#[path = "../../benches/scheduler/order.rs"]
mod order;
#[allow(dead_code, unused_imports)]
#[path = "../../../../benches/packing/mod.rs"]
mod packing;

use cluster::{Extent, Layout, measure, support};
use std::time::Duration;

const NODES: usize = 10;
/// The pods of the burst, while the counters of every node change.
const BURST: usize = 50;

#[test]
fn scheduler_finds_all_room_once() {
    let Some(programs) = support::programs() else {
        return;
    };
    // The times bound the waits of a busy machine. No figure is judged.
    let extent = Extent {
        churn: 25,
        limit: Duration::from_secs(300),
        pending: Duration::from_secs(120),
    };
    let cell = measure(&programs, Layout::Ours, NODES, 1, extent);
    let line = cell.line();
    assert!(!cell.is_cut, "{line}");
    assert_eq!(
        (cell.overlaps, cell.pending_with_room, cell.refused),
        (0, 0, 0),
        "{line}"
    );
    assert_eq!(cell.rewritten, BURST, "{line}");
}
