//! The counters, as an exposition takes them. This is the one place where their values come in.

use super::family::{Families, Histogram, Value};
use super::table;
use runmig_lease::counters::{
    Actor, BOUNDS_MS, Counter, Counts, Distribution, DriverFailure, HolderKind, LeaseKind, Outcome,
    Part, ResourceKind, Times,
};
use std::time::{SystemTime, UNIX_EPOCH};

/// Counts of one boot. Empty lists have no series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// The time since which all of these count, in seconds of the epoch.
    pub created: f64,
    pub creates: Vec<Creates>,
    pub create_seconds: Vec<CreateSeconds>,
    pub releases: Vec<Releases>,
    /// The kind, and the times.
    pub release_seconds: Vec<(String, Histogram)>,
    /// The resource, and the count.
    pub destroy_retries: Vec<(String, u64)>,
    /// The resource, and the count.
    pub quarantines: Vec<(String, u64)>,
    /// The return code of NVML, and the count.
    pub driver_errors: Vec<(String, u64)>,
    /// The time of the last complete collection, in seconds of the epoch.
    pub last_collection: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Creates {
    pub kind: String,
    pub holder: String,
    pub outcome: String,
    pub count: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CreateSeconds {
    pub kind: String,
    pub part: String,
    pub seconds: Histogram,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Releases {
    pub kind: String,
    pub by: String,
    pub count: u64,
}

impl Counters {
    /// Returns the counts of a boot. Everything that a create or a release can be has a count also at 0, so that no rate
    /// misses the first.
    pub fn of(counts: &Counts) -> Counters {
        let seconds = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH);
            since.map_or(0.0, |since| since.as_secs_f64())
        };
        let created = seconds(counts.since);
        let mut counters = Counters {
            created,
            ..Counters::default()
        };
        for kind in LeaseKind::ALL {
            counters.add_creates(counts, *kind);
            counters.add_releases(counts, *kind);
            for part in Part::ALL {
                let times = counts.times(Times::Create(*kind, *part));
                counters
                    .create_seconds
                    .extend(times_of(times, created).map(|seconds| CreateSeconds {
                        kind: kind.word().to_owned(),
                        part: part.word().to_owned(),
                        seconds,
                    }));
            }
            let times = times_of(counts.times(Times::Release(*kind)), created);
            let times = times.map(|seconds| (kind.word().to_owned(), seconds));
            counters.release_seconds.extend(times);
        }
        for resource in ResourceKind::ALL {
            for (list, counter) in [
                (
                    &mut counters.destroy_retries,
                    Counter::DestroyRetries(*resource),
                ),
                (&mut counters.quarantines, Counter::Quarantines(*resource)),
            ] {
                let count = counts.get(counter);
                if *resource != ResourceKind::Other || count > 0 {
                    list.push((resource.word().to_owned(), count));
                }
            }
        }
        let errors = DriverFailure::all()
            .map(|failure| (failure.word(), counts.get(Counter::DriverErrors(failure))));
        counters.driver_errors = errors.filter(|(_, count)| *count > 0).collect();
        let collection = counts.get(Counter::LastCollection);
        counters.last_collection = (collection > 0).then_some(collection as f64);
        counters
    }

    fn add_creates(&mut self, counts: &Counts, kind: LeaseKind) {
        for holder in HolderKind::ALL {
            let is_known = match holder {
                HolderKind::Container => kind != LeaseKind::Other,
                HolderKind::Claim => kind == LeaseKind::Slice,
                HolderKind::Other => false,
            };
            for outcome in Outcome::ALL {
                let count = counts.get(Counter::Creates(kind, *holder, *outcome));
                if is_known || count > 0 {
                    self.creates.push(Creates {
                        kind: kind.word().to_owned(),
                        holder: holder.word().to_owned(),
                        outcome: outcome.word().to_owned(),
                        count,
                    });
                }
            }
        }
    }

    fn add_releases(&mut self, counts: &Counts, kind: LeaseKind) {
        for by in Actor::ALL {
            let count = counts.get(Counter::Releases(kind, *by));
            if kind != LeaseKind::Other || count > 0 {
                self.releases.push(Releases {
                    kind: kind.word().to_owned(),
                    by: by.word().to_owned(),
                    count,
                });
            }
        }
    }
}

/// Returns a distribution as a histogram. None without any time.
fn times_of(times: Distribution, created: f64) -> Option<Histogram> {
    let any = times.classes.iter().any(|count| *count > 0);
    any.then(|| Histogram {
        bounds: BOUNDS_MS.map(|ms| ms as f64 / 1000.0).to_vec(),
        counts: times.classes,
        sum: times.sum.as_secs_f64(),
        created,
    })
}

/// Adds the families of the counters.
pub fn add(families: &mut Families, counters: &Counters) {
    let counter = |total: u64| Value::Counter {
        total: total as f64,
        created: counters.created,
    };
    let histogram = |of: &Histogram| Value::Histogram(of.clone());
    for one in &counters.creates {
        let labels = [&*one.kind, &*one.holder, &*one.outcome];
        families.add(&table::CREATES, &labels, counter(one.count));
    }
    for one in &counters.create_seconds {
        let labels = [&*one.kind, &*one.part];
        families.add(&table::CREATE_SECONDS, &labels, histogram(&one.seconds));
    }
    for one in &counters.releases {
        families.add(
            &table::RELEASES,
            &[&*one.kind, &*one.by],
            counter(one.count),
        );
    }
    for (kind, seconds) in &counters.release_seconds {
        families.add(&table::RELEASE_SECONDS, &[kind], histogram(seconds));
    }
    for (of, counts) in [
        (&table::DESTROY_RETRIES, &counters.destroy_retries),
        (&table::QUARANTINES, &counters.quarantines),
        (&table::DRIVER_ERRORS, &counters.driver_errors),
    ] {
        for (label, count) in counts {
            families.add(of, &[label], counter(*count));
        }
    }
    if let Some(time) = counters.last_collection {
        families.gauge(&table::COLLECTION_LAST, &[], time);
    }
}
