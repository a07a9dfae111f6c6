//! Many at once.

use crate::counters::creates;
use crate::counters::storm::all_releases;
use runmig_lease::counters::{LeaseKind, Outcome};
use runmig_lease::events::{Event, History};
use testkit::prelude::*;

/// The events of creates and releases, which equal the counters.
fn written(world: &World) -> Vec<(&'static str, u64)> {
    let mut history = History::new(&world.state().join("events.jsonl"));
    let mut counts = [("ready", 0), ("refused", 0), ("released", 0)];
    let mut count = |event: Event| {
        let word = event.event_type.word();
        for (_, n) in counts.iter_mut().filter(|(of, _)| *of == word) {
            *n += 1;
        }
    };
    history.read(true, &mut count).unwrap();
    assert_eq!(history.unreadable, 0);
    counts.into_iter().filter(|(_, n)| *n > 0).collect()
}

/// Failure: more creates than slots
#[test]
fn serves_200_creates_on_56_slots() {
    let world = World::of(BIG, 8);
    // On a busy machine the last one waits for long.
    world.configure("lock_timeout = \"120s\"");
    let ids: Vec<String> = (0..200).map(|n| format!("c{n}")).collect();
    let (made, refused) = world.create_at_once(&ids);
    refused
        .iter()
        .for_each(|line| has(line, "memory slices are free"));
    assert_eq!((made.len(), refused.len()), (56, 144));
    assert_eq!(world.instances().len(), 56);
    // One that waits longer than a second for the ledger says in the log that it is not counted.
    let told = "nothing is counted: cannot lock the ledger";
    let lost = world.log().matches(told).count() as u64;
    let counted = [(Outcome::Created, 56), (Outcome::Full, 144 - lost)];
    assert_eq!(creates(&world, LeaseKind::Slice), counted);
    assert_eq!(written(&world), [("ready", 56), ("refused", 144)]);
    world.nothing_lost_nothing_given_twice().unwrap();
    let uuids = ids.iter().filter_map(|id| world.uuid_in_bundle(id));
    assert_eq!(uuids.collect::<BTreeSet<_>>().len(), 56);
    // And back, all at once.
    world.delete_at_once(&made);
    assert_eq!(all_releases(&world), 56);
    assert_eq!(written(&world).last(), Some(&("released", 56)));
    world.as_if_nothing_had_been().unwrap();
}

/// Failure: creates on different GPUs
#[test]
fn creates_on_two_gpus_overlap() {
    let world = World::of(BIG, 8);
    world.takes("nvmlDeviceCreateGpuInstanceWithPlacement", 2000);
    let whole = |id: &str| {
        world.bundle_asking(id, "7g.80gb");
        world.creating(id)
    };
    let begin = Instant::now();
    whole("alone").end().ok();
    let one = begin.elapsed();
    world.delete("alone");
    let begin = Instant::now();
    let all: Vec<_> = (0..8).map(|n| whole(&format!("c{n}"))).collect();
    all.into_iter().for_each(|one| drop(one.end().ok()));
    let eight = begin.elapsed();
    // One after the other they would take eight times as long.
    assert!(eight < one * 3, "one takes {one:?}, eight take {eight:?}");
}

/// Failure: one process keeps a lock
/// Failure: a kill of a process that holds a lock
#[test]
fn bounds_lock_wait_and_names_holder() {
    let world = World::small();
    world.configure("lock_timeout = \"50ms\"");
    world.takes("nvmlDeviceCreateGpuInstanceWithPlacement", 600_000);
    let holder = world.creating("slow");
    until("the first has the GPU", || {
        let lock = fs::read_to_string(world.gpu_lock(0));
        lock.is_ok_and(|text| text.contains("create of slow"))
    });
    let pid = holder.pid();
    let who = format!("is held by process {pid} (create of slow) [runmig");
    has(&world.refuses("second", &who), "50ms");
    assert_eq!(world.leases().len(), 1, "nothing was begun for the second");
    holder.signal(Signal::SIGKILL);
    holder.end();
    world.no_faults();
    world.nobody_is_left();
    world.create("third");
}

/// Failure: a slow driver keeps a GPU locked while others create
#[test]
fn locked_gpu_gives_way_or_is_waited_for() {
    let world = World::of(BIG, 2);
    world.configure("lock_timeout = \"50ms\"\n[policy]\nslices_per_container = 2");
    world.comes_and_goes("before");
    let gpu = |id: &str| world.leases_of(id)[0]["gpuIndex"].clone();
    let lock = world.lock_gpu(0);
    for (id, slice) in [
        ("small", "1g.10gb"),
        ("two", "1g.10gb*2"),
        ("rest", "4g.40gb"),
    ] {
        world.create_asking(id, slice);
        assert_eq!(gpu(id), 1);
    }
    world.refuses_asking("none", "7g.80gb", "; GPU 0: cannot lock GPU ");
    let waiter = world.waits_asking("waits", "4g.40gb");
    drop(lock);
    world.delete("small");
    waiter.end().ok();
    assert_eq!(gpu("waits"), 0);
    world.all_go(&["two", "rest", "waits"]);
}
