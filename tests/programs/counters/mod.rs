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

/// The values of a label whose counters are not 0, with these.
fn counted<T: Copy>(world: &World, all: &[T], of: impl Fn(T) -> Counter) -> Vec<(T, u64)> {
    let counts = counts(world);
    let counted = all.iter().map(|value| (*value, counts.get(of(*value))));
    counted.filter(|(_, n)| *n != 0).collect()
}

/// The creates of containers, by their ends.
pub fn creates(world: &World, kind: LeaseKind) -> Vec<(Outcome, u64)> {
    let of = |end| Counter::Creates(kind, HolderKind::Container, end);
    counted(world, Outcome::ALL, of)
}

/// The releases of slices, by their actors.
pub fn releases(world: &World) -> Vec<(Actor, u64)> {
    let of = |by| Counter::Releases(LeaseKind::Slice, by);
    counted(world, Actor::ALL, of)
}
