//! `migctl events` chooses, follows, and passes over bad lines.

use crate::events::{chosen, events, file, lines, printed, types};
use std::fs::OpenOptions;
use testkit::prelude::*;

fn append(world: &World, bytes: &[u8]) {
    let mut file = OpenOptions::new().append(true).open(file(world)).unwrap();
    file.write_all(bytes).unwrap();
}

/// The clock may be set back, so each event is judged by its own time.
#[test]
fn chooses_events_by_time() {
    let world = World::small();
    world.comes_and_goes("one");
    let all = events(&world);
    let text = fs::read_to_string(file(&world)).unwrap();
    let time = |event: &Value| event["time"].as_str().unwrap().to_owned();
    let (first, second) = (time(&all[0]), text.lines().nth(1).unwrap());
    let set_back = second.replace(&time(&all[1]), "2020-01-01T00:00:00.000Z");
    fs::write(file(&world), text.replace(second, &set_back)).unwrap();
    for since in [first.as_str(), "1h"] {
        let chosen = chosen(&world, &["--since", since]);
        assert_eq!(types(&chosen), ["created", "released"], "{since}");
    }
    let rows = world.tells(&["events"]);
    begins_with(&rows, &format!("{first} created 1g.6gb at "));
    let wrong = printed(&world, &["--since", "soon"]).exits(2);
    wrong.warns("neither a time");
}

#[test]
fn chooses_events_by_container() {
    let world = World::small();
    let long = "d7842cd4f705b7f0d7842cd4f705b7f0";
    world.create_all(&[long, "other"]);
    let named = [
        ("runmig.dev/slice", world.profile),
        ("io.kubernetes.container.name", "web"),
        ("io.kubernetes.pod.name", "web-0"),
        ("io.kubernetes.pod.namespace", "team"),
    ];
    world.create_saying("named", &named);
    world.delete_all(&["named", "other", long]);
    for (name, id) in [
        (long, long),
        ("d7842cd4f705", long),
        ("web", "named"),
        ("team/web-0/web", "named"),
    ] {
        let chosen = chosen(&world, &["--container", name]);
        assert_eq!(types(&chosen), ["created", "ready", "released"]);
        assert!(chosen.iter().all(|event| event["lease"]["container"] == id));
    }
    for nobody in ["d7842cd4", "we"] {
        let chosen = chosen(&world, &["--container", nobody]);
        assert_eq!(types(&chosen), [""; 0], "{nobody}");
    }
}

/// Failure: the events have a cut line, one of 1 MiB or of a newer version
#[test]
fn skips_unreadable_lines() {
    let world = World::small();
    world.create("one");
    let text = fs::read_to_string(file(&world)).unwrap();
    let newer = text.replace("runmig.dev/v1", "runmig.dev/v9");
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
    let all = ["created", "ready", "created", "ready", "released"];
    assert_eq!(types(&lines(&said)), all);
    assert_eq!(said.stderr, "migctl: skipped 1 line that cannot be read\n");
    assert_eq!(events(&world).len(), 5);
}

/// Failure: a kill after the event of a lease's end was written, and before the lease was removed
#[test]
fn prints_repeated_end_once() {
    let world = World::small();
    world.create("one");
    let mut following = going(&mut world.migctl(&["events", "--follow", "-o", "json"]));
    following.until("\"type\":\"ready\"");
    world.delete("one");
    following.until("\"type\":\"released\"");
    let text = fs::read_to_string(file(&world)).unwrap();
    let end = text.lines().last().unwrap().to_owned() + "\n";
    // A collector came next, and then a hook.
    let collected = end.replace("\"released\"", "\"collected\"");
    append(&world, collected.as_bytes());
    append(&world, end.as_bytes());
    world.create("two");
    following.until("\"container\":\"two\"");
    following.signal(Signal::SIGTERM);
    let expected = ["created", "ready", "released", "created"];
    assert_eq!(types(&lines(&following.end()))[..4], expected);
    let all = events(&world);
    assert_eq!(types(&all)[..4], expected);
    let lease = all[1]["lease"]["id"].as_str().unwrap();
    assert_eq!(all[2]["id"], format!("end-{lease}"));
    assert_ne!(all[0]["id"], all[1]["id"]);
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
    until("it has ended", || child.try_wait().unwrap().is_some());
}

#[test]
fn names_events_that_are_off() {
    let world = World::small();
    world.configure("events.file = \"\"");
    world.create("one");
    assert!(!file(&world).exists());
    let off = "the configuration turns them off; hint: set events.file";
    world.ctl(&["events"]).exits(1).warns(off);
}
