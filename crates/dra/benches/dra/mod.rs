//! The figures of `runmig-dra` on one node, in turn.
//!
//! ```text
//! single    one claim after the other: promise, Prepare, Unprepare
//! together  a claim on each GPU at once, with a slow GPU driver
//! counters  local slices that come and go
//! many      every place has a claim: memory, and a quiet time
//! burst     many pods at once: writes to the API
//! size      the program
//! host      a simulated machine with the driver beside it
//! cluster   API server and etcd, and the objects of a pod
//! figures   a figure beside its bar, and the table
//! ```

mod burst;
mod cluster;
mod counters;
mod figures;
mod host;
mod many;
mod single;
mod size;
mod together;

pub use figures::table;

use cluster::Cluster;
use figures::Figure;
use host::Host;
use std::path::PathBuf;
use std::time::Duration;

/// The GPUs of the node, all of one model.
const GPUS: usize = 8;

pub struct Options {
    /// The folder of etcd and the API server.
    pub programs: PathBuf,
    /// The program as `scripts/image` builds it.
    pub shipped: Option<PathBuf>,
    /// The number of claims that are measured one by one.
    pub rounds: usize,
    /// The length of the quiet time.
    pub idle: Duration,
}

/// Measures everything, in a few minutes.
pub fn measure(options: &Options) -> Vec<Figure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let cluster = Cluster::start(&options.programs).await;
        let program = options.shipped.as_deref();
        let host = Host::start(&cluster, "node", GPUS, program).await;
        let mut figures = single::run(&cluster, &host, options.rounds).await;
        figures.extend(together::run(&cluster, &host).await);
        figures.extend(counters::run(&cluster, &host, options.rounds / 2).await);
        figures.extend(many::run(&cluster, &host, options.idle).await);
        drop(host);
        figures.extend(size::run(program));
        let host = Host::start(&cluster, "burst", 2 * GPUS, program).await;
        figures.extend(burst::run(&cluster, &host).await);
        figures
    })
}
