//! Counters of creates and releases, which outlive every process.

pub mod storm;

use runmig_lease::counters::{Counter, Counts, HolderKind, LeaseKind, Outcome};
use runmig_lease::store::Store;
use testkit::prelude::*;

fn counts(world: &World) -> Counts {
    let boot = runmig_lease::process::boot_id(&world.machine()).unwrap();
    let store = Store::existing(&world.state(), Duration::from_secs(10)).unwrap();
    store.map_or_else(Counts::default, |store| {
        store.at_boot(&boot).list().unwrap().counters
    })
}

fn get(world: &World, counter: Counter) -> u64 {
    counts(world).get(counter)
}

/// The creates of containers by their ends, without those that are 0.
pub fn creates(world: &World, kind: LeaseKind) -> Vec<(Outcome, u64)> {
    let counts = counts(world);
    let of = |end| Counter::Creates(kind, HolderKind::Container, end);
    let counted = Outcome::ALL.iter().map(|end| (*end, counts.get(of(*end))));
    counted.filter(|(_, n)| *n != 0).collect()
}
