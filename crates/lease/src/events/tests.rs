//! The files of events: rotation, order, bad lines.

use super::event::encode;
use super::{AT_ONCE, *};
use crate::view::LeaseView;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use tempfile::TempDir;

fn event(container: &str) -> Event {
    Event {
        lease: Some(LeaseView {
            container: Some(container.to_owned()),
            ..LeaseView::default()
        }),
        ..Event::now(EventType::Ready)
    }
}

fn name(event: &Event) -> String {
    event
        .lease
        .clone()
        .unwrap_or_default()
        .container
        .unwrap_or_default()
}

/// Reads all, and returns the names with the number of unreadable lines.
fn read(file: &Path) -> (Vec<String>, u64) {
    let (mut history, mut names) = (History::new(file), Vec::new());
    let mut push = |event: Event| names.push(name(&event));
    history.read(true, &mut push).unwrap();
    (names, history.unreadable)
}

fn home() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log/events.jsonl");
    (dir, file)
}

fn append(file: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new().append(true).open(file).unwrap();
    file.write_all(bytes).unwrap();
}

/// The size of `count` events.
fn size(count: u64) -> u64 {
    encode(event("000")).len() as u64 * count
}

fn writer(file: &Path, max_size: u64) -> Writer {
    let file = file.to_owned();
    Writer { file, max_size }
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("{n:03}")).collect()
}

#[test]
fn keeps_four_older_files() {
    let (_dir, file) = home();
    let writer = writer(&file, size(10));
    for name in numbers(0..63) {
        writer.write(vec![event(&name)]);
    }
    // Six full files, of which one is gone, and a begun one.
    assert_eq!(read(&file), (numbers(20..63), 0));
    assert!(!numbered(&file, OLDER + 1).exists());
}

#[test]
fn writes_many_at_once() {
    let (_dir, file) = home();
    let events: Vec<Event> = numbers(0..3_000).iter().map(|name| event(name)).collect();
    let size = events.len() as u64 * size(1);
    assert!(size > 4 * AT_ONCE as u64);
    let writer = writer(&file, size / 2);
    writer.write(events);
    writer.write(vec![]);
    assert_eq!(read(&file), (numbers(0..3_000), 0));
    assert!(numbered(&file, 1).exists());
}

/// Failure: two processes rotate the events at once
#[test]
fn concurrent_rotations_lose_no_event() {
    let (_dir, file) = home();
    let writers = 8;
    thread::scope(|scope| {
        for n in 0..writers {
            let writer = writer(&file, size(100));
            scope.spawn(move || {
                for name in numbers(50 * n..50 * (n + 1)) {
                    writer.write(vec![event(&name)]);
                }
            });
        }
    });
    let (mut names, unreadable) = read(&file);
    names.sort();
    assert_eq!((names, unreadable), (numbers(0..50 * writers), 0));
    assert!(numbered(&file, 1).exists());
}

fn with_id(name: &str, id: Option<&str>) -> Event {
    Event {
        id: id.map(str::to_owned),
        ..event(name)
    }
}

/// Failure: an event is written twice, also across a rotation
#[test]
fn reads_repeated_id_once() {
    let (_dir, file) = home();
    let writer = writer(&file, size(2));
    for (name, id) in [
        ("000", Some("end-a")),
        ("001", None),
        ("002", Some("end-b")),
        ("not", Some("end-a")),
        ("003", None),
        ("not", Some("end-b")),
        ("004", Some("recovered-a")),
    ] {
        writer.write(vec![with_id(name, id)]);
    }
    assert!(numbered(&file, 1).exists());
    assert_eq!(read(&file), (numbers(0..5), 0));
}

/// A reader that follows for long, or reads what others wrote, keeps few ids.
#[test]
fn reader_forgets_old_and_long_ids() {
    let (_dir, file) = home();
    let writer = Writer::new(file.clone());
    let mut history = History::new(&file);
    let long = "x".repeat(1 << 10);
    for id in ["end-a", &long, &long] {
        writer.write(vec![with_id("", Some(id))]);
    }
    let many = 2 * MOST_IDS;
    let lines = (0..many).map(|n| encode(with_id("", Some(&n.to_string()))));
    append(&file, &lines.collect::<Vec<_>>().concat());
    writer.write(vec![with_id("", Some("end-a"))]);
    let mut read = 0;
    history.read(true, &mut |_| read += 1).unwrap();
    assert_eq!(read, 3 + many + 1);
}

#[test]
fn writes_while_another_rotates() {
    let (_dir, file) = home();
    let writer = writer(&file, size(2));
    numbers(0..2)
        .iter()
        .for_each(|name| writer.write(vec![event(name)]));
    let other = File::open(&file).unwrap();
    assert!(crate::effect::try_lock(&other).unwrap());
    writer.write(vec![event("002")]);
    assert!(!numbered(&file, 1).exists());
    drop(other);
    writer.write(vec![event("003")]);
    assert_eq!(read(&numbered(&file, 1)).0, numbers(0..3));
    assert_eq!(read(&file), (numbers(0..4), 0));
}

#[test]
fn unusable_file_stays_as_it_is() {
    let (dir, file) = home();
    // The folder of the folder is missing: a file system that is not mounted.
    let far = dir.path().join("disk/log/events.jsonl");
    Writer::new(far).write(vec![event("a")]);
    assert!(!dir.path().join("disk").exists());
    fs::create_dir(file.parent().unwrap()).unwrap();
    let other = dir.path().join("other");
    fs::write(&other, "kept").unwrap();
    symlink(&other, &file).unwrap();
    Writer::new(file.clone()).write(vec![event("a")]);
    fs::remove_file(&file).unwrap();
    fs::hard_link(&other, &file).unwrap();
    Writer::new(file.clone()).write(vec![event("a")]);
    assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
    fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    Writer::new(file.clone()).write(vec![event("a")]);
    assert!(History::new(&file).read(true, &mut |_| {}).is_err());
}

#[test]
fn counts_lines_that_it_cannot_read() {
    let (_dir, file) = home();
    let writer = Writer::new(file.clone());
    writer.write(vec![event("000")]);
    let line = encode(event("newer"));
    let newer = String::from_utf8(line.clone())
        .unwrap()
        .replace("/v1", "/v2");
    append(&file, newer.as_bytes());
    append(&file, &[b'{'; 1 << 20]);
    append(&file, b"\n\n\xff\xfe\n");
    // A full disk cut the line.
    append(&file, &line[..line.len() / 2]);
    writer.write(vec![event("001")]);
    append(&file, &line[..line.len() / 2]);
    assert_eq!(read(&file), (numbers(0..2), 5));
}

#[test]
fn later_reads_cross_rotations() {
    let (_dir, file) = home();
    let (mut history, mut names) = (History::new(&file), Vec::new());
    let writer = writer(&file, size(4));
    for n in 0..12 {
        writer.write(vec![event(&format!("{n:03}"))]);
        // Some looks miss a rotation.
        if n % 5 == 0 {
            history
                .read(false, &mut |event| names.push(name(&event)))
                .unwrap();
        }
    }
    history
        .read(false, &mut |event| names.push(name(&event)))
        .unwrap();
    assert_eq!(names, numbers(0..12));
    fs::write(&file, "").unwrap();
    writer.write(vec![event("new")]);
    history
        .read(false, &mut |event| names.push(name(&event)))
        .unwrap();
    assert_eq!(names.last().unwrap(), "new");
    assert_eq!(history.unreadable, 0);
}
