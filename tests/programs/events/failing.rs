//! No failure of the history reaches a create.

use crate::events::{events, types};
use testkit::prelude::*;

fn write_events_to(world: &World, file: &Path) {
    let config = world.path("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.split("[events]").next().unwrap();
    fs::write(&config, format!("{text}[events]\nfile = {file:?}\n")).unwrap();
}

/// The lines of the log about events.
fn complaints(world: &World) -> Vec<String> {
    let log = world.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("cannot write events"));
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
    assert!(log[0].contains("No such file or directory"), "{log:?}");
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
    assert!(log[0].contains("hint: correct events.file"), "{log:?}");
    let log = creates_anyway(&world, Path::new("/dev/full"));
    assert!(log[0].contains("not a file with one name"), "{log:?}");
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
    let all = events(&world);
    assert_eq!(types(&all), ["created", "ready"]);
}

/// In another user's folder the history would be what that user likes.
/// Failure: the folder of the events is a link, or open to others
#[test]
fn folder_of_others_takes_no_event() {
    let world = World::small();
    let open = world.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let log = creates_anyway(&world, &open.join("events.jsonl"));
    has(&log[0], "users other than root can write to it");
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    let (link, ours) = (world.path("link"), world.path("ours"));
    fs::create_dir(&ours).unwrap();
    symlink(&ours, &link).unwrap();
    let log = creates_anyway(&world, &link.join("events.jsonl"));
    assert!(log[0].contains("a link, or no folder"), "{log:?}");
    assert_eq!(fs::read_dir(&ours).unwrap().count(), 0);
}
