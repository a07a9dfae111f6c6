//! Claims of Kubernetes, by the calls of the kubelet's driver.

use super::*;
use nvml_sim::fault::{Moment, Outcome};

pub const ALL: &[Operation] = &[
    operation("prepare-claim", Kind::Collect, |world| {
        call(world, "prepare")
    }),
    operation("prepare-half-made-claim", Kind::Collect, |world| {
        half_made(world);
        call(world, "prepare")
    }),
    operation("gc-of-half-made-claim", Kind::Collect, |world| {
        half_made(world);
        world.note_claims();
        world.migctl(&["gc"]).into()
    }),
    operation("release-claim", Kind::Collect, |world| {
        made(world, ID);
        world.note_claims();
        world.migctl(&["release", ID]).into()
    }),
    operation("release-claims", Kind::Collect, |world| {
        made(world, ID);
        said(&mut world.claims("promise", PEER)).ok();
        world.note_claims();
        world.migctl(&["release", "--claims"]).into()
    }),
    operation("create-with-claim", Kind::Create, |world| {
        made(world, ID);
        world.note_claims();
        world.bundle_with_claims(ID, &[ID]);
        world.create_command(ID).into()
    }),
];

/// A file that says that the world has claims.
const CLAIMS: &str = "claims";

fn call(world: &World, verb: &str) -> Call {
    world.note_claims();
    world.claims(verb, ID).into()
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
