//! `migctl events` chooses, follows, and passes over bad lines.

use crate::events::{events, file, lines, printed, types};
use nix::sys::signal::Signal;
use std::fs::{self, OpenOptions};
use std::io::Write;
use testkit::faults::World;
use testkit::{going, said};

fn append(world: &World, bytes: &[u8]) {
    let mut file = OpenOptions::new().append(true).open(file(world)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn chooses_events() {
    let world = World::small();
    for id in ["one", "two"] {
        world.create(id);
        world.delete(id);
    }
    let chosen = |options: &[&str]| events(&world, options).len();
    assert_eq!(chosen(&[]), 6);
    assert_eq!(
        chosen(&["--since", "1h", "--gpu", "0", "--kind", "slice"]),
        6
    );
    assert_eq!(chosen(&["--until", "1h"]), 0);
    assert_eq!(
        chosen(&[
            "--type",
            "ready",
            "--type",
            "released",
            "--container",
            "two"
        ]),
        2
    );
    assert_eq!(chosen(&["--namespace", "team-a"]), 0);
    let last = events(&world, &["--container", "one", "--last", "2"]);
    assert_eq!(types(&last), ["ready", "released"]);
    let table = said(&mut world.migctl(&["events", "--last", "1"])).ok();
    let rows: Vec<&str> = table.stdout.lines().collect();
    assert!(
        rows[0].starts_with("TIME") && rows[1].contains("released"),
        "{rows:?}"
    );
    for (option, value) in [
        ("--since", "soon"),
        ("--type", "made"),
        ("--gpu", "a"),
        ("--kind", "x"),
    ] {
        let wrong = said(&mut world.migctl(&["events", option, value])).exits(2);
        assert!(wrong.stderr.contains(option), "{}", wrong.stderr);
    }
}

#[test]
fn skips_unreadable_lines() {
    let world = World::small();
    world.create("one");
    let newer = fs::read_to_string(file(&world))
        .unwrap()
        .replace("runmig.dev/v1", "runmig.dev/v9");
    append(&world, newer.as_bytes());
    append(&world, &[b'x'; 1 << 20]);
    append(&world, b"\n{\"apiVersion\":");
    world.delete("one");
    let all = printed(&world, &[]).ok();
    assert_eq!(types(&lines(&all)), ["created", "ready", "released"]);
    assert_eq!(all.stderr, "migctl: skipped 4 lines that cannot be read\n");
}

#[test]
fn follows_across_rotation() {
    let world = World::small();
    // The folder of the file is not there yet.
    let mut following = going(&mut world.migctl(&["events", "--follow", "-o", "json"]));
    world.create("one");
    following.until("\"type\":\"ready\"");
    append(&world, &[b'x'; 8 << 20]);
    append(&world, b"\n");
    world.create("two");
    following.until("\"container\":\"two\"");
    assert!(world.state().join("events.jsonl.1").exists());
    world.delete("two");
    following.until("\"type\":\"released\"");
    // A shell starts its jobs in the background with SIGINT ignored.
    following.signal(Signal::SIGTERM);
    let said = following.end();
    assert_eq!(
        types(&lines(&said)),
        ["created", "ready", "created", "ready", "released"]
    );
    assert_eq!(said.stderr, "migctl: skipped 1 line that cannot be read\n");
    assert_eq!(events(&world, &[]).len(), 5);
}

#[test]
fn following_ends_with_its_reader() {
    let world = World::small();
    world.create("one");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = world.migctl(&["events", "--follow"]);
    let mut child = command.stdout(writer).spawn().unwrap();
    // The writer's end is now the child's alone.
    drop(command);
    let mut first = [0];
    std::io::Read::read_exact(&mut &reader, &mut first).unwrap();
    drop(reader);
    testkit::process::until("it has ended", || child.try_wait().unwrap().is_some());
}

#[test]
fn names_events_that_are_off() {
    let world = World::small();
    let config = world.path("config.toml");
    let text = fs::read_to_string(&config).unwrap() + "[events]\nfile = \"\"\n";
    fs::write(&config, text).unwrap();
    world.create("one");
    assert!(!file(&world).exists());
    let off = said(&mut world.migctl(&["events"])).exits(1);
    assert!(
        off.stderr
            .contains("the configuration turns them off; hint: set events.file"),
        "{}",
        off.stderr
    );
}
