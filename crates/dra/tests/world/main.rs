//! A bad world around the driver: the API server, other programs, the disk and the machine, beside a real API server.

mod answers;
mod boots;
mod cdi;
#[path = "../support/cluster.rs"]
mod cluster;
mod disk;
mod looks;
mod many;
mod older;
mod others;
#[path = "../support/proxy.rs"]
mod proxy;

use cluster::support;
