//! Other versions of runmig on the ledger: a holder that this version does not know.

use super::*;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::PathBuf;

/// Writes a lease as a later version would for another kind of holder, and returns its file. That version gives the
/// record's name another ending, as this one does for claims.
fn of_unknown_holder(world: &World) -> PathBuf {
    let leases = fs::read_dir(world.state().join("leases")).unwrap();
    let file = leases.flatten().next().unwrap().path();
    let text = fs::read_to_string(&file).unwrap();
    let (head, body) = text.trim_end().split_once('\n').unwrap();
    let mut body: serde_json::Value = serde_json::from_str(body).unwrap();
    let holder = body["holder"]["claim"].take();
    body["holder"] = serde_json::json!({"session": holder});
    let mut head: serde_json::Value = serde_json::from_str(head).unwrap();
    let hash = Sha256::digest(body.to_string());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    head["sha256"] = hash.into();
    fs::remove_file(&file).unwrap();
    let file = file.with_extension("session");
    fs::write(&file, format!("{head}\n{body}\n")).unwrap();
    file
}

/// A program of the version before claims did the same with the lease of a claim.
#[test]
fn leaves_unknown_holder_alone() {
    let world = World::small();
    let whole = place(&world, "4g.24gb", 0, 4);
    prepare(&world, "a", &whole).unwrap();
    let file = of_unknown_holder(&world);
    let (record, ours) = (fs::read(&file).unwrap(), world.the_instance());
    let stays = |what: &str| {
        assert_eq!(fs::read(&file).unwrap(), record, "{what}");
        assert_eq!(world.the_instance(), ours, "{what}");
    };
    let told = world.gc().exits(1).stdout;
    assert!(told.contains("is a lease of a newer runmig"), "{told}");
    stays("gc");
    world.bundle_asking("local", "1g.6gb");
    said(&mut world.create_command("local")).refused();
    stays("create");
    for claim in [promise(&world, "b", &whole), prepare(&world, "b", &whole)] {
        let line = claim.unwrap_err().line();
        assert!(line.contains("cannot make 4g.24gb"), "{line}");
    }
    stays("claim");
    unprepare(&world, "a").unwrap();
    said(&mut world.migctl(&["release", "--claims"]));
    stays("release of claims");
    with(&world, |leases| leases.release_ended()).unwrap();
    stays("sweep");
}
