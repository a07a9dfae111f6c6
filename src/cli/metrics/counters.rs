//! The families of the counters.

use super::table;
use super::text::Families;
use runmig_lease::counters::{
    Actor, Counter, Counts, HolderKind, LeaseKind, Outcome, Part, ResourceKind, Times,
};

/// Adds the counts of a boot. Everything that a create or a release can be has a count also at 0, so that no rate misses
/// the first.
pub fn add(families: &mut Families, counts: &Counts) {
    let get = |counter| counts.get(counter) as f64;
    for kind in LeaseKind::ALL {
        for holder in HolderKind::ALL {
            // A claim has slices alone.
            if *holder == HolderKind::Claim && *kind != LeaseKind::Slice {
                continue;
            }
            for outcome in Outcome::ALL {
                let labels = [kind.word(), holder.word(), outcome.word()];
                let count = get(Counter::Creates(*kind, *holder, *outcome));
                families.add(&table::CREATES, &labels, count);
            }
        }
        for part in Part::ALL {
            if let Some(times) = counts.times(Times::Create(*kind, *part)) {
                let labels = [kind.word(), part.word()];
                families.histogram(&table::CREATE_SECONDS, &labels, times);
            }
        }
        for by in Actor::ALL {
            let labels = [kind.word(), by.word()];
            let count = get(Counter::Releases(*kind, *by));
            families.add(&table::RELEASES, &labels, count);
        }
        if let Some(times) = counts.times(Times::Release(*kind)) {
            families.histogram(&table::RELEASE_SECONDS, &[kind.word()], times);
        }
    }
    for of in ResourceKind::ALL {
        let labels = [of.word()];
        let retries = get(Counter::DestroyRetries(*of));
        families.add(&table::DESTROY_RETRIES, &labels, retries);
        families.add(&table::QUARANTINES, &labels, get(Counter::Quarantines(*of)));
    }
    for (code, count) in counts.driver_errors() {
        families.add(&table::DRIVER_ERRORS, &[code], count as f64);
    }
    if counts.last_collection > 0 {
        families.add(&table::COLLECTION_LAST, &[], counts.last_collection as f64);
    }
}
