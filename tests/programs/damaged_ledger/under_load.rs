//! A ledger that is damaged while creates, deletes, claims and collections run. For waits see the session `waiting`.

use super::{DAMAGES, Damage, World, ledger};
use runmig_lease::error::printable;
use testkit::prelude::*;

/// Returns the generation of the ledger as it is; of a damaged one the last.
fn generation(world: &World, last: u64) -> u64 {
    let text = fs::read_to_string(ledger(world)).unwrap_or_default();
    let header = text.lines().next().unwrap_or_default();
    let header: Value = serde_json::from_str(header).unwrap_or_default();
    header["generation"].as_u64().unwrap_or(last)
}

/// Damages the ledger after so many changes of the others.
fn round(world: &World, (why, damage): (&str, Damage), changes: u64) {
    world.create_all(&["stays", "ends"]);
    let begun = generation(world, 0);
    let mut calls = [
        ("made", world.create_command("made")),
        ("also made", world.create_command("also-made")),
        ("ends", world.runmig(&["delete", "--force", "ends"])),
        ("gc", world.migctl(&["gc"])),
        ("claim", world.claims("prepare", "uid")),
    ]
    .map(|(name, mut call)| (name, going(&mut call)));
    until("the ledger changes", || {
        let all_ended = calls.iter_mut().all(|(_, one)| one.ended().is_some());
        all_ended || generation(world, begun + changes) >= begun + changes
    });
    damage(world);
    let ended: BTreeMap<&str, _> = { calls.into_iter() }
        .map(|(name, one)| (name, one.end()))
        .collect();
    let about = format!("{why}, after {changes} changes: {ended:#?}");
    let repaired = world.repair();
    // Nothing is lost in silence: what nobody has is named.
    for instance in world.instances() {
        let leases = world.leases();
        let is_its = |lease: &&Value| testkit::faults::check::claims(lease, &instance);
        if leases.iter().find(is_its).is_none() {
            let line = format!("GPU instance {} (", instance.gi);
            assert!(repaired.stderr.contains(&line), "{about}\n{repaired:?}");
            world.admin_destroys(instance.gpu, instance.gi);
        }
    }
    world.gc().ok();
    let is_well = |outcome: Result<(), String>| outcome.unwrap_or_else(|e| panic!("{e}\n{about}"));
    is_well(world.nothing_lost_nothing_given_twice());
    assert!(world.living_init("ends").is_none(), "{about}");
    for (id, name) in [("stays", ""), ("made", "made"), ("also-made", "also made")] {
        let is_made = ended.get(name).is_none_or(|said| said.status.success());
        if is_made {
            is_well(world.has_its_slices(id));
        } else {
            assert!(world.living_init(id).is_none(), "{id}: {about}");
        }
    }
    for (name, said) in &ended {
        // A collection tells in its table what it could not release.
        let line = printable(&(said.stdout.clone() + &said.stderr));
        assert!(
            said.status.success()
                || line.contains("is damaged: ")
                // A create may have its place.
                || *name == "claim" && line.contains(" has 1g.6gb at "),
            "{name}: {about}"
        );
    }
    for id in ["stays", "made", "also-made"] {
        let _ = said(&mut world.runmig(&["delete", "--force", id]));
    }
    said(&mut world.claims("unprepare", "uid")).ok();
    world.gc().ok();
    is_well(world.as_if_nothing_had_been());
}

/// Failure: the ledger is damaged while creates, deletes, claims and collections run
#[test]
fn damage_under_load_loses_nothing() {
    let world = World::of(SMALL, 2);
    let seed = std::env::var("RUNMIG_SEED").map_or(0, |seed| seed.parse().unwrap());
    let mut random = Random::new(seed);
    for damage in DAMAGES {
        for _ in 0..3 {
            round(&world, *damage, random.below(30));
        }
    }
}
