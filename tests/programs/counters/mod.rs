//! Counters of creates and releases, which outlive every process.

mod damage;
mod outcomes;
mod releases;
pub mod storm;

use runmig_lease::counters::{Actor, Counter, Counts, HolderKind, LeaseKind, Outcome};
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

/// The creates of containers, by their ends.
pub fn creates(world: &World, kind: LeaseKind) -> Vec<(Outcome, u64)> {
    let counts = counts(world);
    let of = |outcome: &Outcome| {
        let counter = Counter::Creates(kind, HolderKind::Container, *outcome);
        let n = counts.get(counter);
        (n != 0).then_some((*outcome, n))
    };
    Outcome::ALL.iter().filter_map(of).collect()
}

/// The releases of slices, by their actors.
pub fn releases(world: &World) -> Vec<(Actor, u64)> {
    let of = |by: &Actor| {
        let n = get(world, Counter::Releases(LeaseKind::Slice, *by));
        (n != 0).then_some((*by, n))
    };
    Actor::ALL.iter().filter_map(of).collect()
}
