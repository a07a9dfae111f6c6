//! The families of the counters.

use super::family::{Families, Histogram, Value};
use super::table;
use runmig_lease::counters::{
    Actor, BOUNDS_MS, Counter, Counts, Distribution, HolderKind, LeaseKind, Outcome, Part,
    ResourceKind, Times,
};

/// Adds the counts of a boot. Everything that a create or a release can be has a count also at 0, so that no rate misses
/// the first.
pub fn add(families: &mut Families, counts: &Counts) {
    let counter = |counter| Value::Counter(counts.get(counter) as f64);
    for kind in LeaseKind::ALL {
        for holder in HolderKind::ALL {
            // A claim has slices alone.
            if *holder == HolderKind::Claim && *kind != LeaseKind::Slice {
                continue;
            }
            for outcome in Outcome::ALL {
                let labels = [kind.word(), holder.word(), outcome.word()];
                let count = counter(Counter::Creates(*kind, *holder, *outcome));
                families.add(&table::CREATES, &labels, count);
            }
        }
        for part in Part::ALL {
            if let Some(times) = counts.times(Times::Create(*kind, *part)) {
                let labels = [kind.word(), part.word()];
                families.add(&table::CREATE_SECONDS, &labels, histogram(times));
            }
        }
        for by in Actor::ALL {
            let labels = [kind.word(), by.word()];
            families.add(
                &table::RELEASES,
                &labels,
                counter(Counter::Releases(*kind, *by)),
            );
        }
        if let Some(times) = counts.times(Times::Release(*kind)) {
            families.add(&table::RELEASE_SECONDS, &[kind.word()], histogram(times));
        }
    }
    for resource in ResourceKind::ALL {
        let labels = [resource.word()];
        let retries = counter(Counter::DestroyRetries(*resource));
        families.add(&table::DESTROY_RETRIES, &labels, retries);
        let quarantines = counter(Counter::Quarantines(*resource));
        families.add(&table::QUARANTINES, &labels, quarantines);
    }
    for (code, count) in counts.driver_errors() {
        families.add(&table::DRIVER_ERRORS, &[code], Value::Counter(count as f64));
    }
    if counts.last_collection > 0 {
        families.gauge(&table::COLLECTION_LAST, &[], counts.last_collection as f64);
    }
}

fn histogram(times: &Distribution) -> Value {
    Value::Histogram(Histogram {
        bounds: BOUNDS_MS.map(|ms| ms as f64 / 1000.0).to_vec(),
        counts: times.classes.to_vec(),
        sum: times.sum.as_secs_f64(),
    })
}
