//! Claims of Kubernetes in the ledger, as `runmig-dra` puts them there.

use runmig_lease::config::Config;
use runmig_lease::model::{GpuUuid, Placement};
use runmig_lease::store::{Claim, ClaimPod};
use runmig_lease::{ClaimPlace, Leases, NoBundles};
use std::path::Path;
use std::time::Duration;

/// Returns a claim of the pod `train`, by its UID.
pub fn claim(uid: &str) -> Claim {
    Claim {
        uid: uid.to_owned(),
        namespace: "team-a".to_owned(),
        name: format!("{uid}-gpu"),
        request: "slice".to_owned(),
        pool: "runmig.node".to_owned(),
        device: "device".to_owned(),
        pods: vec![ClaimPod {
            uid: "pod-uid".to_owned(),
            name: "train".to_owned(),
        }],
    }
}

pub fn place(gpu: &str, profile: &str, start: u32, size: u32) -> ClaimPlace {
    ClaimPlace {
        gpu: GpuUuid::new(gpu),
        profile: profile.to_owned(),
        placement: Placement { start, size },
    }
}

/// Calls the ledger of a configuration.
pub fn with<T>(config: &Path, call: impl FnOnce(&Leases<'_>) -> T) -> T {
    let config = Config::read(config).unwrap();
    call(&Leases::open(&config, Box::new(NoBundles)).unwrap())
}

/// Makes the slice of a claim.
pub fn prepare(config: &Path, claim: Claim, at: &ClaimPlace) {
    let prepared = with(config, |leases| {
        leases.prepare(claim, at, Duration::ZERO, &|_| ())
    });
    prepared.unwrap();
}
