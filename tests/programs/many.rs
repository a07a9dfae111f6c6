//! Many at once.

use crate::counters::creates;
use crate::counters::storm::all_releases;
use runmig_lease::counters::{LeaseKind, Outcome};
use runmig_lease::events::{Event, History};
use testkit::prelude::*;

/// Without standard input, as `said` has it.
fn start(mut command: Command) -> testkit::Going {
    going(command.stdin(Stdio::null()))
}

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
    assert_eq!(history.unreadable(), 0);
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
    let mut unclear = refused.clone();
    unclear.retain(|line| !line.contains("memory slices are free"));
    assert!(unclear.is_empty(), "made {made:?}: {unclear:#?}");
    assert_eq!((made.len(), refused.len()), (56, 144));
    assert_eq!(world.instances().len(), 56);
    let counted = [(Outcome::Created, 56), (Outcome::Full, 144)];
    assert_eq!(creates(&world, LeaseKind::Slice), counted);
    assert_eq!(written(&world), [("ready", 56), ("refused", 144)]);
    world.nothing_lost_nothing_given_twice().unwrap();
    let mut uuids: Vec<_> = ids
        .iter()
        .filter_map(|id| world.uuid_in_bundle(id))
        .collect();
    uuids.sort();
    uuids.dedup();
    assert_eq!(uuids.len(), 56);
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
        start(world.create_command(id))
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
    let holder = start(world.create_command("slow"));
    let gpu_lock = || {
        let names = testkit::faults::check::names(&world.state());
        let name = names.into_iter().find(|n| n.starts_with("gpu-"))?;
        fs::read_to_string(world.state().join(name)).ok()
    };
    until("the first has the GPU", || {
        gpu_lock().is_some_and(|text| text.contains("create of slow"))
    });
    let line = said(&mut world.create_command("second")).refused();
    let who = format!(
        "is held by process {} (create of slow) [runmig",
        holder.pid()
    );
    assert!(line.contains(&who) && line.contains("50ms"), "{line}");
    assert_eq!(world.leases().len(), 1, "nothing was begun for the second");
    holder.signal(Signal::SIGKILL);
    holder.end();
    world.no_faults();
    world.all_go(&[]);
    world.create("third");
}

/// Failure: a slow driver keeps a GPU locked while others create
#[test]
fn locked_gpu_gives_way_or_is_waited_for() {
    let world = World::of(BIG, 2);
    world.configure("lock_timeout = \"50ms\"\n[policy]\nslices_per_container = 2");
    world.create("before");
    world.delete("before");
    let index = |id: &str| {
        let mut leases = world.leases().into_iter();
        let lease = leases.find(|lease| lease["container"] == id);
        lease.unwrap()["gpuIndex"].as_u64().unwrap()
    };
    let gpu = &world.engine().gpus[0].uuid;
    let lock = fs::File::create(world.state().join(format!("gpu-{gpu}.lock"))).unwrap();
    fs2::FileExt::lock_exclusive(&lock).unwrap();
    for (id, slice) in [
        ("small", "1g.10gb"),
        ("two", "1g.10gb*2"),
        ("rest", "4g.40gb"),
    ] {
        world.bundle_asking(id, slice);
        said(&mut world.create_command(id)).ok();
        assert_eq!(index(id), 1);
    }
    world.bundle_asking("none", "7g.80gb");
    let line = said(&mut world.create_command("none")).refused();
    has(&line, "; GPU 0: cannot lock GPU ");
    let waiter = world.waits("waits", &[("runmig.dev/slice", "4g.40gb")]);
    fs2::FileExt::unlock(&lock).unwrap();
    world.delete("small");
    waiter.end().ok();
    assert_eq!(index("waits"), 0);
    world.all_go(&["two", "rest", "waits"]);
}
