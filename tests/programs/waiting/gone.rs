//! A user who takes a bundle away waits for its container no more, and need not end its create.

use super::refused;
use testkit::prelude::*;

/// Whether the kernel tells it what happens to this folder.
pub fn is_told_of(waiter: &Going, dir: &Path) -> bool {
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
    let first = world.waits_asking("first", "4g.24gb");
    let second = world.waits_asking("second", "4g.24gb");
    let third = world.waits_asking("third", world.profile);
    let [of_first, of_second, of_third] = ["first", "second", "third"].map(|id| world.bundle(id));
    assert!(is_told_of(&first, &of_first));
    // One that is written anew is there.
    let (config, new) = (of_third.join("config.json"), of_third.join("new"));
    fs::copy(&config, &new).unwrap();
    fs::rename(&new, &config).unwrap();
    // Its folder may stay.
    fs::remove_file(of_second.join("config.json")).unwrap();
    let names = |waiter: Going, dir: &Path| {
        let why = "is gone: nobody waits for this container any more";
        has(
            &refused(waiter),
            &format!("the bundle {} {why}", dir.display()),
        );
    };
    names(second, &of_second);
    assert_eq!(world.queue(), ["first", "third"]);
    fs::remove_dir_all(&of_first).unwrap();
    names(first, &of_first);
    fs::remove_dir_all(&of_second).unwrap();
    third.end().ok();
    world.all_go(&["small", "third"]);
}
