//! Looks at the ledger and the log.

use crate::cluster::Cluster;
use testkit::prelude::*;

/// The names of the claims on record.
pub fn on_record(cluster: &Cluster) -> BTreeSet<String> {
    let held = cluster.leases();
    let claims = held.iter().filter_map(|held| held.lease.claim());
    claims.map(|claim| claim.name.clone()).collect()
}

/// Each warning of these lines is there once.
#[track_caller]
pub fn warns_once(lines: &[String]) {
    let warnings = lines.iter().filter(|line| !line.starts_with("INFO"));
    let mut seen = BTreeSet::new();
    for line in warnings {
        assert!(seen.insert(line), "twice: {line}\nin {lines:#?}");
    }
}
