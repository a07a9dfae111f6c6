//! Claims of Kubernetes, by the calls of the kubelet's driver.

use super::*;
use nvml_sim::fault::{Moment, Outcome};

pub const ALL: &[Operation] = operations! {
    "prepare-claim", Collect: |_| () => prepare;
    "prepare-half-made-claim", Collect: half_made => prepare;
    "gc-of-half-made-claim", Collect: half_made => |w| noted(w, &["gc"]);
    "release-claim", Collect: |w| made(w, ID) => |w| noted(w, &["release", ID]);
    "release-claims", Collect: |w| {
        made(w, ID);
        said(&mut w.claims("promise", PEER)).ok();
    } => |w| noted(w, &["release", "--claims"]);
    "create-with-claim", Create: |w| made(w, ID) => create_with_claim;
};

/// A file that says that the world has claims.
const CLAIMS: &str = "claims";

fn prepare(world: &World) -> Call {
    world.note_claims();
    world.claims("prepare", ID).into()
}

fn noted(world: &World, verb: &[&str]) -> Call {
    world.note_claims();
    world.migctl(verb).into()
}

fn create_with_claim(world: &World) -> Call {
    world.note_claims();
    world.bundle_with_claims(ID, &[ID]);
    create(world)
}

fn made(world: &World, uid: &str) {
    said(&mut world.claims("prepare", uid)).ok();
}

/// A Prepare that was killed between its GPU instance and its compute instance.
fn half_made(world: &World) {
    let create = "nvmlGpuInstanceCreateComputeInstance";
    world.fault(create, 1, Some(1), Outcome::Kill(Moment::During));
    let ended = said(&mut world.claims("prepare", ID));
    assert_eq!(ended.status.code(), None, "{ended:?}");
    world.no_faults();
}

impl World {
    fn note_claims(&self) {
        fs::write(self.path(CLAIMS), "").unwrap();
    }
}

/// After anything that befell a claim, the kubelet's next tries succeed: the claim gets its slice, and gives it back.
pub fn kubelet_tries_again(world: &World) -> Result<(), String> {
    if !world.path(CLAIMS).exists() {
        return Ok(());
    }
    fs::remove_file(world.path(CLAIMS)).unwrap();
    world.nothing_lost_nothing_given_twice()?;
    said(&mut world.claims("prepare", ID)).ok();
    let leases = world.leases();
    let its: Vec<_> = leases.iter().filter(|l| l["claim"]["uid"] == ID).collect();
    if its.len() != 1 || its[0]["state"] != "ready" {
        return Err(format!("the claim has no slice: {leases:#?}"));
    }
    world.nothing_lost_nothing_given_twice()?;
    for uid in [ID, PEER] {
        said(&mut world.claims("unprepare", uid)).ok();
    }
    // The driver of the claims knows no bundles, and an engine removes those of a pod.
    let _ = fs::remove_dir_all(world.path("bundles").join(ID));
    Ok(())
}
