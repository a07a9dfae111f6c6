//! Counters: of every kind, from 0 on, and since the first count.

use super::parsers::accepted;
use super::*;

fn counted(setup: &Setup) -> Exposition {
    Exposition::read(&accepted(setup.migctl(&["metrics"]).ok()).stdout)
}

#[test]
fn counters_have_kind_and_holder() {
    let setup = setup();
    let nothing = counted(&setup);
    assert!(nothing.of("runmig_creates_total").is_empty());
    fill(&setup);
    let now = counted(&setup);
    for (kind, holder, outcome, count) in [
        ("slice", "container", "created", 2.0),
        ("slice", "container", "shared", 1.0),
        ("seat", "container", "created", 2.0),
        ("share", "container", "created", 2.0),
        ("gpu", "container", "created", 1.0),
        ("gpu", "container", "full", 0.0),
        ("slice", "claim", "created", 1.0),
    ] {
        let labels = [("kind", kind), ("holder", holder), ("outcome", outcome)];
        now.has("runmig_creates_total", &labels, count);
    }
    let made = |labels: &[(&str, &str)]| now.value("runmig_create_seconds_count", labels);
    assert_eq!(made(&[("kind", "slice"), ("part", "total")]), 4.0);
    // A claim has no low-level runtime.
    assert_eq!(made(&[("kind", "slice"), ("part", "runtime")]), 3.0);
}

#[test]
fn releases_and_collections_are_counted() {
    let setup = setup();
    let id = create(&setup, "job", "alone", &[("runmig.dev/slice", "2g.20gb")]);
    setup.delete(&id);
    let collection = "runmig_collection_last_timestamp_seconds";
    assert!(counted(&setup).of(collection).is_empty());
    setup.migctl(&["gc"]).ok();
    let now = counted(&setup);
    let by = |by| now.value("runmig_releases_total", &[("kind", "slice"), ("by", by)]);
    assert_eq!((by("hook"), by("delete"), by("gc")), (1.0, 0.0, 0.0));
    now.has("runmig_release_seconds_count", &[], 1.0);
    assert_eq!(now.of(collection).len(), 1);
}
