//! One cell is a layout on some nodes: a control plane of its own, the load, and the figures.
//!
//! ```text
//! load           the pods, and the time until each is bound
//! nodes          the nodes' publishers, fed by a watch on claims
//! layouts        the devices of a node in ResourceSlices, in several ways
//! control_plane  the real parts, as processes
//! figures        a cell, and the table
//! ```

mod control_plane;
mod figures;
mod layouts;
mod load;
mod nodes;

pub use figures::{Cell, table};
pub use layouts::{LAYOUTS, Layout};
pub use load::Extent;

#[allow(unused_imports)] // the test asks for the programs
pub use control_plane::support;

use control_plane::ControlPlane;
use std::path::Path;

/// Measures a layout on so many nodes.
pub fn measure(programs: &Path, layout: Layout, nodes: usize, seed: u64, extent: Extent) -> Cell {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let plane = ControlPlane::start(programs).await;
        load::run(&plane, layout, nodes, seed, extent).await
    })
}
