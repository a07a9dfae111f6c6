//! More who wait than a kernel has watches for.

use crate::waiting::gone::is_told_of;
use crate::waiting::{WAIT, create, refused};
use testkit::prelude::*;

/// Whether the kernel tells it what happens.
fn is_watching(waiter: &Going) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", waiter.pid())).unwrap();
    let mut targets = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    targets.any(|target| target.to_string_lossy().contains("inotify"))
}

/// A waiter too far behind for a watch is not woken, so it looks: at its bundle, and at the room.
#[test]
fn serves_distant_waiter_without_watch() {
    let world = World::small();
    let full = world.full();
    let in_queue = |n: usize| {
        let id = format!("w{n}");
        let waiter = create(&world, &id, world.profile, &[WAIT]);
        until("it is in the queue", || world.queue().contains(&id));
        waiter
    };
    let mut waiters: Vec<Going> = (0..35).map(in_queue).collect();
    let watching: Vec<bool> = waiters.iter().map(is_watching).collect();
    assert_eq!(watching, (0..35).map(|n| n < 32).collect::<Vec<_>>());
    let (last, gone) = (waiters.pop().unwrap(), waiters.pop().unwrap());
    let bundle = world.bundle("w33");
    assert!(!is_told_of(&gone, &bundle));
    fs::remove_dir_all(&bundle).unwrap();
    has(&refused(gone), "is gone");
    waiters.into_iter().for_each(Going::kill);
    world.delete(&full[0]);
    last.end().ok();
    world.delete("w34");
    world.all_go(&full[1..]);
}
