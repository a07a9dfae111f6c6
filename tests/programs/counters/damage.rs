//! Counting changes no outcome. Where the ledger takes no counts, they are lost.

use crate::counters::creates;
use runmig_lease::counters::{LeaseKind, Outcome};
use testkit::prelude::*;

fn complaints(world: &World) -> usize {
    let log = world.log();
    log.matches("nothing is counted").count()
}

/// Failure: the ledger is damaged, or of a newer version, when a create is counted
#[test]
fn refusal_by_ledger_is_not_counted() {
    for (from, to, why) in [
        ("\"sha256\":\"", "\"sha256\":\"0", "is damaged"),
        ("runmig.dev/v", "runmig.dev/v9", "its hash is wrong"),
        ("{", "", "its first line cannot be read"),
    ] {
        let world = World::small();
        world.create("before");
        let file = world.state().join("ledger.json");
        let text = fs::read_to_string(&file).unwrap();
        let damaged = text.replacen(from, to, 1);
        assert_ne!(damaged, text);
        fs::write(&file, &damaged).unwrap();
        world.refuses("refused", why);
        assert_eq!(complaints(&world), 1);
        assert_eq!(fs::read_to_string(&file).unwrap(), damaged);
    }
}

/// Failure: another process keeps the ledger's lock from counts
#[test]
fn held_lock_changes_no_refusal() {
    let world = World::small();
    world.create("before");
    // It leaves nothing pending beside the count.
    let refused = || world.refuses_asking("refused", "9g.90gb", "");
    let free = refused();
    let counted = [(Outcome::Created, 1), (Outcome::Unsatisfiable, 1)];
    assert_eq!(creates(&world, LeaseKind::Slice), counted);
    let ledger = fs::File::open(world.state().join("ledger.lock")).unwrap();
    ledger.lock().unwrap();
    assert_eq!(refused(), free);
    drop(ledger);
    assert_eq!(complaints(&world), 1);
    assert_eq!(creates(&world, LeaseKind::Slice), counted);
}

/// Failure: a repair of the ledger meets counters
#[test]
fn repair_keeps_counters_of_its_generation() {
    let world = World::small();
    world.create("one");
    world.gc().ok();
    world.create("two");
    let file = world.state().join("ledger.json");
    fs::write(&file, "no ledger").unwrap();
    world.repair();
    // The last change made the second one ready.
    assert_eq!(creates(&world, LeaseKind::Slice), [(Outcome::Created, 1)]);
    fs::write(&file, "no ledger").unwrap();
    fs::write(world.state().join("ledger.json.1"), "no ledger").unwrap();
    world.repair();
    assert_eq!(creates(&world, LeaseKind::Slice), []);
    world.create("three");
    assert_eq!(creates(&world, LeaseKind::Slice), [(Outcome::Created, 1)]);
}

/// Each change is a durable write. Counts of a life travel with its changes, a refusal has one of its own, and a look none.
#[test]
fn counts_travel_with_changes() {
    let world = World::small();
    let generation = || {
        let text = fs::read_to_string(world.state().join("ledger.lock")).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or_default()
    };
    let changes = |act: &dyn Fn()| {
        let before = generation();
        act();
        generation() - before
    };
    assert_eq!(changes(&|| drop(world.create("one"))), 5);
    assert_eq!(changes(&|| drop(world.delete("one"))), 3);
    let refused = || world.refuses_asking("refused", "9g.90gb", "");
    assert_eq!(changes(&|| drop(refused())), 1);
    let claim = |verb| drop(said(&mut world.claims(verb, "uid")).ok());
    assert_eq!(changes(&|| claim("prepare")), 5);
    assert_eq!(changes(&|| claim("unprepare")), 3);
    let memory = "nvmlDeviceGetMemoryInfo";
    world.fault(memory, 1, None, nvml_sim::fault::Outcome::Return(999));
    for verb in ["list", "metrics", "explain", "gpus"] {
        let more: &[&str] = if verb == "explain" { &["1g.6gb"] } else { &[] };
        let look = || drop(world.ctl(&[&[verb], more].concat()));
        assert_eq!(changes(&look), 0, "{verb}");
    }
    world.no_faults();
    let all = [(Outcome::Created, 1), (Outcome::Unsatisfiable, 1)];
    assert_eq!(creates(&world, LeaseKind::Slice), all);
}
