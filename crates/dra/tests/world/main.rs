//! A bad world around the driver: the API server, other programs, the disk and the machine, beside a real API server.

mod answers;
mod boots;
mod calls;
mod cdi;
#[allow(dead_code)]
#[path = "../claims/cluster.rs"]
mod cluster;
mod disk;
mod many;
mod older;
mod others;
#[path = "../support/proxy.rs"]
mod proxy;

use cluster::support;

const POOL: &str = "runmig.node";
