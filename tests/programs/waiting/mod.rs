//! Creates that wait for room, as processes of their own.

mod gone;
mod kept_out;
mod long_queue;
mod repaired;

use testkit::prelude::*;

const WAIT: (&str, &str) = ("runmig.dev/wait", "10m");

/// A create of a container that asks for this.
fn create(world: &World, id: &str, slice: &str, more: &[(&str, &str)]) -> Going {
    world.bundle_saying(id, &[&[("runmig.dev/slice", slice)], more].concat());
    going(world.create_command(id).stdin(Stdio::null()))
}

#[track_caller]
fn refused(going: Going) -> String {
    going.end().refused()
}

/// A full world, its containers, and as many that wait.
fn all_wait() -> (World, Vec<String>, Vec<String>, Vec<Going>) {
    let world = World::small();
    let full = world.full();
    let ids: Vec<String> = (0..full.len()).map(|n| format!("w{n}")).collect();
    let wait = |id: &String| world.waits_asking(id, world.profile);
    let waiters = ids.iter().map(wait).collect();
    (world, full, ids, waiters)
}

/// Each is woken by the delete of another, and they come in their order, however slow the first is.
/// Failure: several creates wait, and slices come back
#[test]
fn serves_in_order_of_arrival() {
    let (world, full, ids, mut waiters) = all_wait();
    for (n, gone) in full.iter().enumerate() {
        let first = waiters.remove(0);
        first.stop();
        world.delete(gone);
        waiters.iter().for_each(|w| stands_still(w.pid()));
        assert_eq!(world.queue(), ids[n..]);
        first.signal(Signal::SIGCONT);
        first.end().ok();
        assert!(world.living_init(&ids[n]).is_some());
    }
    world.nothing_lost_nothing_given_twice().unwrap();
    world.all_go(&ids);
}

/// `migctl list` shows the waiting containers and their requests.
#[test]
fn lists_waiting_requests() {
    let world = World::small();
    let full = world.full();
    let waiter = world.waits_asking("w", world.profile);
    let table = world.tells(&["list"]);
    has(&table, "WAITING  NAME  REQUEST");
    let row = table.lines().find(|line| line.starts_with("w ")).unwrap();
    let pid = waiter.pid();
    ends_with(row, &format!(" {pid}"));
    let list = world.json(&["list", "-o", "json"]);
    assert_eq!(list["items"].as_array().unwrap().len(), full.len());
    assert_eq!(list["waiting"][0]["container"], "w");
    assert_eq!(list["waiting"][0]["request"], world.profile);
    assert_eq!(list["waiting"][0]["pid"], pid);
    world.delete(&full[0]);
    waiter.end().ok();
    let list = world.json(&["list", "-o", "json"]);
    assert_eq!(list["waiting"].as_array().unwrap().len(), 0);
}

/// It has nothing to release, and the error says how to end it.
#[test]
fn never_releases_waiting_requests() {
    let world = World::small();
    let full = world.full();
    let id = "f00d".repeat(16);
    let waiter = world.waits_asking(&id, world.profile);
    let (short, pid) = (&id[..12], waiter.pid());
    let waits = format!(
        "container {short} has nothing yet: it waits for 1g.6gb, by process {pid}; hint: end that process: kill {pid}"
    );
    let unknown = "cannot find container or lease f00d";
    for (name, words) in [(&*id, &*waits), (short, &waits), (&id[..11], unknown)] {
        for verb in ["release", "inspect"] {
            world.ctl(&[verb, name]).exits(1).warns(words);
        }
    }
    waiter.signal(Signal::SIGTERM);
    drop(waiter.end());
    world.all_go(&full);
}

/// All containers end at once, and all creates begin at once.
#[test]
fn serves_all_as_machine_empties() {
    let (world, full, ids, waiters) = all_wait();
    world.delete_at_once(&full);
    waiters.into_iter().for_each(|w| drop(w.end().ok()));
    world.nothing_lost_nothing_given_twice().unwrap();
    world.all_go(&ids);
}

/// It neither keeps its place nor anybody behind it.
/// Failure: a kill of the first in the queue
#[test]
fn killed_waiter_blocks_nobody() {
    let world = World::small();
    world.create("small");
    // The whole GPU: the one behind it could start at once, were it not for this one.
    let first = world.waits_asking("first", "4g.24gb");
    let second = world.waits_asking("second", world.profile);
    let third = world.waits_asking("third", world.profile);
    assert_eq!(world.queue(), ["first", "second", "third"]);
    first.kill();
    second.end().ok();
    third.end().ok();
    world.all_go(&["small", "second", "third"]);
    assert_eq!(world.queue(), Vec::<String>::new());
}

/// One that is stopped still waits: it is its turn.
#[test]
fn sleeping_waiter_keeps_its_place() {
    let world = World::small();
    world.create("small");
    let first = world.waits_asking("first", "4g.24gb");
    first.stop();
    let second = world.waits_asking("second", world.profile);
    world.delete("small");
    stands_still(second.pid());
    let queue = "2 earlier requests (container first, 4g.24gb; container second, 1g.6gb)";
    world.refuses("third", queue);
    served_in_order(&world, first, second);
}

/// The first one goes on from its stop and gets its slice, and its end lets the second one in.
fn served_in_order(world: &World, first: Going, second: Going) {
    first.signal(Signal::SIGCONT);
    first.end().ok();
    assert_eq!(world.queue(), ["second"]);
    world.delete("first");
    second.end().ok();
    world.all_go(&["second"]);
}

fn woken_by(free: impl Fn(&World, &Going)) {
    let world = World::small();
    let full = world.full();
    // It collects when it begins, so what died before is not what wakes it.
    world.vanish("full0");
    world.create("full0");
    let waiter = world.waits_asking("waiter", world.profile);
    free(&world, &waiter);
    waiter.end().ok();
    world.delete("waiter");
    world.all_go(&full[1..]);
}

#[test]
fn woken_by_the_hook() {
    woken_by(|world, _| {
        let lease = world.abandon("full0");
        settled(&world.hook("full0", &lease)).ok();
    });
}

#[test]
fn woken_by_gc() {
    woken_by(|world, _| {
        said(&mut world.bare(&["kill", "full0", "KILL"])).ok();
        world.gc().ok();
    });
}

#[test]
fn woken_by_migctl_release() {
    woken_by(|world, waiter| {
        // Else it may have its slice before the release shows who waits.
        waiter.stop();
        world.vanish("full0");
        let list = world.json(&["-o", "json", "release", "full0"]);
        assert_eq!(list["items"][0]["container"], "full0");
        assert_eq!(list["waiting"][0]["container"], "waiter");
        waiter.signal(Signal::SIGCONT);
    });
}

/// No call releases anything, so the waiter finds out by itself.
#[test]
fn finds_container_that_died_unnoticed() {
    woken_by(|world, _| drop(said(&mut world.bare(&["kill", "full0", "KILL"])).ok()));
}

#[test]
fn expired_wait_says_why() {
    let world = World::small();
    let full = world.full();
    let wait = [("runmig.dev/wait", "50ms")];
    let line = refused(create(&world, "waiter", world.profile, &wait));
    let words = "cannot allocate 1g.6gb: too few memory slices are free (0 of 4 on 1 GPU, at most \
                 0 on one); on GPU 0 container ";
    has(&line, words);
    let words = " (1g.6gb) is in the way; the create waited 50ms; hint: run migctl list to see who holds the slices";
    ends_with(line.trim_end(), words);
    assert_eq!(world.queue(), Vec::<String>::new());
    world.delete_all(&full);
    // Nor is anybody held up by it.
    world.create("after");
    world.all_go(&["after"]);
}

/// A refusal names less where another look would keep the create far beyond its time.
#[test]
fn expired_wait_asks_no_slow_driver_again() {
    let world = World::small();
    let full = world.full();
    world.takes("nvmlInit_v2", 1100);
    let wait = [("runmig.dev/wait", "50ms")];
    let calls = world.driver_calls(|| {
        refused(create(&world, "waiter", world.profile, &wait));
    });
    let starts = calls.iter().filter(|call| call.contains("nvmlInit"));
    assert_eq!(starts.count(), 1, "{calls:?}");
    world.no_faults();
    world.all_go(&full);
}

/// If the large request could never go there, the small one delays nothing.
#[test]
fn backfills_harmless_requests() {
    let world = World::of(BIG, 1);
    world.create_asking("one", "1g.10gb");
    let sits_at = |id: &str| world.lease_of(id)["migPlacement"]["start"].as_u64();
    // It goes into the first half alone.
    world.create_asking("four", "4g.40gb");
    let other = world.waits_asking("other", "4g.40gb");
    world.create_asking("two", "2g.20gb");
    assert!(sits_at("two") >= Some(4) && sits_at("one") >= Some(4));
    world.refuses_asking("three", "3g.40gb", "cannot allocate 3g.40gb: ");
    world.delete("four");
    other.end().ok();
    world.all_go(&["one", "two", "other"]);
}

/// Engines that are known to give up: no wait is longer than they are.
#[test]
fn cuts_wait_to_engine_deadline() {
    let world = World::small();
    let full = world.full();
    for (key, engine) in [
        ("io.kubernetes.cri.container-type", "containerd"),
        ("io.kubernetes.cri-o.ContainerType", "CRI-O"),
    ] {
        let more = [WAIT, (key, "container")];
        let going = create(&world, engine, world.profile, &more);
        until("it waits", || world.queue() == [engine]);
        let words = format!("waits for 1m 30s at most: {engine} gives up on a create soon after");
        has(&world.log(), &words);
        going.kill();
    }
    let podman = [WAIT, ("io.container.manager", "libpod")];
    let going = create(&world, "podman", world.profile, &podman);
    until("it waits", || world.queue() == ["podman"]);
    assert_eq!(world.log().matches("at most").count(), 2);
    going.kill();
    world.all_go(&full);
}

/// A reader of the queue needs the files alone, not the driver.
#[test]
fn blocked_waiter_asks_no_driver() {
    let world = World::small();
    let full = world.full();
    let first = world.waits_asking("first", "4g.24gb");
    let second = world.waits_asking("second", world.profile);
    first.stop();
    let calls = world.driver_calls(|| {
        for id in &full[1..] {
            world.delete(id);
            stands_still(second.pid());
        }
    });
    let snapshots = |calls: &[String]| calls.iter().filter(|c| c.contains("GetCount")).count();
    // The snapshots that a delete asks for itself, and nothing more.
    let one = snapshots(&world.driver_calls(|| drop(world.delete(&full[0]))));
    assert!(snapshots(&calls) <= one * (full.len() - 1), "{calls:?}");
    first.signal(Signal::SIGCONT);
    first.end().ok();
    world.delete("first");
    second.end().ok();
    world.all_go(&["second"]);
}
