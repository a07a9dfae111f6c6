//! No failure of the history reaches a create.

use crate::events::{events, types};
use testkit::prelude::*;

fn write_events_to(world: &World, file: &Path) {
    world.configure(&format!("events.file = {file:?}"));
}

/// The lines of the log about events.
fn complaints(world: &World) -> Vec<String> {
    let log = world.log();
    let lines = { log.lines() }.filter(|line| line.contains("cannot write events"));
    lines.map(str::to_owned).collect()
}

/// Makes a container and deletes it, and returns the lines in the log.
#[track_caller]
fn creates_anyway(world: &World, file: &Path) -> Vec<String> {
    let before = complaints(world).len();
    write_events_to(world, file);
    let created = world.create("one");
    assert_eq!(created.stderr, "");
    let after_create = complaints(world).len();
    // One process makes the slice, and tells once, however many events it has.
    assert_eq!(after_create, before + 1);
    world.delete("one");
    complaints(world).split_off(before)
}

/// Failure: the folder of the events is missing, or runmig has no right to it
#[test]
fn missing_folder_fails_no_create() {
    let world = World::small();
    let log = creates_anyway(&world, Path::new("/nonexistent/log/events.jsonl"));
    has(&log[0], "No such file or directory");
    assert!(!Path::new("/nonexistent").exists());
    // The last folder alone is made.
    let file = world.path("log/events.jsonl");
    write_events_to(&world, &file);
    world.create("two");
    assert_eq!(types(&events(&world)), ["created", "ready"]);
}

#[test]
fn missing_right_fails_no_create() {
    let world = World::small();
    // Even root has no right there.
    let log = creates_anyway(&world, Path::new("/proc/self/events.jsonl"));
    has(&log[0], "hint: correct events.file");
    let log = creates_anyway(&world, Path::new("/dev/full"));
    has(&log[0], "not a file with one name");
}

/// Failure: the disk of the events is full
#[test]
fn full_disk_fails_no_create() {
    let world = World::small();
    let folder = world.path("disk");
    let disk = Mounted::tmpfs(&folder, "size=1m,mode=755");
    let file = folder.join("events.jsonl");
    // The next event finds less room than it needs.
    fs::write(&file, [&[b'x'; 8100][..], b"\n"].concat()).unwrap();
    let filler = disk.fill(0);
    let log = creates_anyway(&world, &file);
    has(&log[0].to_lowercase(), "no storage space");
    // With room again, the event behind the cut one can be read.
    fs::remove_file(filler).unwrap();
    world.create("two");
    assert_eq!(types(&events(&world)), ["created", "ready"]);
}

/// In another user's folder the history would be what that user likes.
/// Failure: the folder of the events is a link, or open to others
#[test]
fn folder_of_others_takes_no_event() {
    let world = World::small();
    let open = world.path("open");
    fs::create_dir(&open).unwrap();
    chmod(&open, 0o777);
    let log = creates_anyway(&world, &open.join("events.jsonl"));
    has(&log[0], "users other than root can write to it");
    assert_eq!(names_in(&open), [""; 0]);
    let (link, ours) = (world.path("link"), world.path("ours"));
    fs::create_dir(&ours).unwrap();
    symlink(&ours, &link).unwrap();
    let log = creates_anyway(&world, &link.join("events.jsonl"));
    has(&log[0], "a link, or no folder");
    assert_eq!(names_in(&ours), [""; 0]);
}
