//! Random churn for a given time: containers with slices, seats, shares and whole GPUs, and claims of Kubernetes, that come and
//! go on one simulated machine while their fronts, low-level runtimes, inits and hooks are killed, the driver fails, instances are held,
//! an administrator makes and destroys his own, GPUs fall sick and are cordoned, somebody collects, Prometheus scrapes, and the
//! machine reboots.
//!
//! `RUNMIG_SOAK_SECONDS` and `RUNMIG_SOAK_SEED` say how long and which; `scripts/soak` sets them. A
//! seed gives the same calls in each thread, not the same order between threads. With `RUNMIG_SOAK_DISK=size=2m` the ledger lies
//! on a tmpfs of that size, which somebody fills up now and then.

mod churn;
mod claimer;
mod closer;
mod filler;
mod judge;
mod scraper;
mod worker;
mod world;

use churn::Soak;
use std::time::SystemTime;
use testkit::prelude::*;

#[test]
fn soak() {
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect(name));
    let seconds = number("RUNMIG_SOAK_SECONDS").unwrap_or(20);
    let seed = number("RUNMIG_SOAK_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        u64::from(now.unwrap().subsec_nanos())
    });
    let disk = std::env::var("RUNMIG_SOAK_DISK").ok();
    let soak = Soak::new(Low::Runc, seed, disk.as_deref());
    soak.run(Duration::from_secs(seconds));
}
