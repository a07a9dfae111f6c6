//! A user who takes a bundle away waits for its container no more, and need not end its create.

use super::{WAIT, create, refused, waiting};
use std::os::unix::fs::MetadataExt;
use testkit::prelude::*;

/// Whether the kernel tells it what happens to this folder.
fn is_told_of(waiter: &Going, dir: &Path) -> bool {
    let inode = format!(" ino:{:x} ", fs::metadata(dir).unwrap().ino());
    let infos = fs::read_dir(format!("/proc/{}/fdinfo", waiter.pid())).unwrap();
    let mut infos = infos.filter_map(|info| fs::read_to_string(info.unwrap().path()).ok());
    infos.any(|info| info.contains("inotify wd:") && info.contains(&inode))
}

/// Failure: the bundle of a waiting create disappears
#[test]
fn waiter_without_bundle_blocks_nobody() {
    let world = World::small();
    world.create("small");
    let first = waiting(&world, "first", "4g.24gb");
    let second = waiting(&world, "second", "4g.24gb");
    let third = waiting(&world, "third", world.profile);
    let [of_first, of_second, of_third] = ["first", "second", "third"].map(|id| world.bundle(id));
    assert!(is_told_of(&first, &of_first));
    // One that is written anew is there.
    let (config, new) = (of_third.join("config.json"), of_third.join("new"));
    fs::copy(&config, &new).unwrap();
    fs::rename(&new, &config).unwrap();
    // Its folder may stay.
    fs::remove_file(of_second.join("config.json")).unwrap();
    let line = refused(second);
    let words = |dir: &Path| {
        format!(
            "the bundle {} is gone: nobody waits for this container any more",
            dir.display()
        )
    };
    has(&line, &words(&of_second));
    assert_eq!(world.queue(), ["first", "third"]);
    fs::remove_dir_all(&of_first).unwrap();
    let line = refused(first);
    has(&line, &words(&of_first));
    fs::remove_dir_all(&of_second).unwrap();
    third.end().ok();
    world.all_go(&["small", "third"]);
}

/// A waiter too far behind for a watch is not woken, so it looks.
#[test]
fn notices_without_being_told() {
    let world = World::small();
    let full = world.full();
    let mut waiters: Vec<Going> = Vec::new();
    for n in 0..33 {
        let id = format!("w{n}");
        waiters.push(create(&world, &id, world.profile, &[WAIT]));
        until("it is in the queue", || world.queue().contains(&id));
    }
    let last = waiters.pop().unwrap();
    let bundle = world.bundle("w32");
    assert!(!is_told_of(&last, &bundle));
    fs::remove_dir_all(&bundle).unwrap();
    let line = refused(last);
    has(&line, "is gone");
    waiters.into_iter().for_each(Going::kill);
    world.all_go(&full.iter().map(String::as_str).collect::<Vec<_>>());
}
