//! Writes of files: readers and a kill find them whole.

use crate::configure::place::{Files, Place, originals};
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::prelude::*;

const CONFIG: &str = "/etc/containerd/config.toml";
const TEXT: &str = "version = 2\n";

#[test]
fn readers_see_whole_files() {
    let Some(program) = on_path("containerd") else {
        return skip("containerd is not there; run scripts/setup");
    };
    let place = Place::new().of("containerd", &program);
    place.write(CONFIG, TEXT);
    place.configure(&[]).ok();
    let configured = place.read(CONFIG);
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut seen = 0;
            while !over.load(Ordering::Relaxed) {
                let text = place.read(CONFIG);
                assert!(text == TEXT || text == configured, "{text}");
                seen += 1;
            }
            seen
        });
        for _ in 0..10 {
            place.configure(&["--remove"]).ok();
            place.configure(&[]).ok();
        }
        over.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    // Nothing unfinished lies about, but the original.
    let files = place.files();
    let names: Vec<_> = files.keys().cloned().collect();
    let kept = originals(&files);
    assert_eq!(names, ["etc/containerd/config.toml", &kept[0]]);
}

/// Says whether no engine reads a file: it is unfinished, or an original.
fn is_unread(name: &str) -> bool {
    name.starts_with("etc/containerd/.") || name.contains(".before-runmig-")
}

/// Killed at each of the calls that write, it leaves files that are as before or as they are to be,
/// nothing that an engine would read by mistake, and a next run that goes through.
#[test]
fn kill_leaves_whole_files() {
    let (Some(program), Some(strace)) = (built("containerd", "containerd"), on_path("strace"))
    else {
        return skip_until_full("containerd 2 or strace is not there; run scripts/setup");
    };
    let place = Place::new().of("containerd", &program);
    place.write(CONFIG, TEXT);
    let removes = &["--remove"][..];
    let before = place.files();
    place.configure(&[]).ok();
    // A folder that a killed run made stays, since nothing tells it from others: the next run's file may lack these lines.
    let texts: Vec<String> = place.files().into_values().map(|(.., text)| text).collect();
    let lines = texts.iter().flat_map(|text| text.split_inclusive('\n'));
    let made = lines.filter(|line| line.starts_with("# It made the folder "));
    let made: Vec<&str> = made.collect();
    assert!(!made.is_empty());
    let files = || {
        let mut files = place.files();
        for (.., text) in files.values_mut() {
            let lines = text.split_inclusive('\n');
            *text = { lines.filter(|line| !made.contains(line)) }.collect();
        }
        files
    };
    let after = files();
    let whole = |files: &Files| {
        for (name, file) in files {
            let known = [before.get(name), after.get(name)].contains(&Some(file));
            let unread = is_unread(name);
            assert!(known || unread, "{name}: {file:?}");
        }
        // The imported file is there.
        if files["etc/containerd/config.toml"] == after["etc/containerd/config.toml"] {
            assert!(files.contains_key("etc/containerd/conf.d/runmig.toml"));
        }
    };
    let mut killed = 0;
    for (run, back, start, end) in [
        (removes, &[][..], &after, &before),
        (&[], removes, &before, &after),
    ] {
        for call in ["write", "fsync", "fchmod", "rename", "unlink"] {
            for when in 1.. {
                let mut traced = Command::new(&strace);
                let inject = format!("inject={call}:signal=KILL:when={when}");
                traced.args(["-o", "/dev/null", "-e", &format!("trace={call}")]);
                traced.args(["-e", &inject]);
                let command = place.command(run);
                traced.arg(command.get_program()).args(command.get_args());
                let status = said(&mut traced).status;
                whole(&files());
                place.configure(run).ok();
                let now = files();
                let read = |files: &Files| {
                    let mut read = files.clone();
                    read.retain(|name, _| !is_unread(name));
                    read
                };
                assert_eq!(read(&now), read(end), "{call} {when}");
                let drafts = now
                    .keys()
                    .filter(|name| name.starts_with("etc/containerd/."));
                drafts.for_each(|name| fs::remove_file(place.path(name)).unwrap());
                place.configure(back).ok();
                assert_eq!(&files(), start);
                if status.success() {
                    break;
                }
                killed += 1;
            }
        }
        place.configure(run).ok();
    }
    assert!(killed > 10, "{killed}");
}
