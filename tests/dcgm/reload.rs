//! `migctl dcgm reload`, beside processes that are called like dcgm-exporter.

use crate::faults_support::World;
use crate::support::process::{copy_program, until};
use crate::support::{Going, going, said};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A reload finds the processes of the whole machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process by the exporter's name. It writes the moment of each SIGHUP, in nanoseconds, into a file.
struct Exporter {
    going: Going,
    signals: PathBuf,
}

impl Exporter {
    fn start(world: &World) -> Exporter {
        let program = world.path("dcgm-exporter");
        copy_program(Path::new("/bin/bash"), &program);
        let signals = world.path("signals");
        let script = format!(
            "trap 'date +%s%N >> {}' HUP; echo ready; while :; do read -t 0.05 < <(sleep 9); done",
            signals.display()
        );
        let mut going = going(Command::new(&program).args(["-c", &script]));
        going.until("ready");
        Exporter { going, signals }
    }

    fn signals(&self) -> Vec<u128> {
        let text = fs::read_to_string(&self.signals).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn until_signals(&self, number: usize) {
        until("the exporter has the signal", || {
            self.signals().len() >= number
        });
        assert_eq!(self.signals().len(), number);
    }
}

fn reload(world: &World, arguments: &[&str]) -> Vec<Value> {
    let all = [&["dcgm", "reload", "-o", "json"], arguments].concat();
    let list = said(&mut world.migctl(&all)).ok().json();
    assert_eq!(list["kind"], "ReloadList");
    list["items"].as_array().unwrap().clone()
}

#[test]
fn tells_exporter_to_reload() {
    let _alone = alone();
    let world = World::small();
    let exporter = Exporter::start(&world);
    let told = reload(&world, &[]);
    let pid = exporter.going.pid();
    assert!(
        matches!(&told[..], [one] if one["pid"] == pid && one["outcome"] == "reloads"),
        "{told:?}"
    );
    exporter.until_signals(1);
}

/// The exporter drops a signal that comes too soon, so the second one waits; it is not lost.
#[test]
fn second_reload_waits_its_turn() {
    let _alone = alone();
    let world = World::small();
    world.configure("dcgm.reload_every = \"5s\"");
    let exporter = Exporter::start(&world);
    let calls: Vec<Going> = (0..2)
        .map(|_| going(&mut world.migctl(&["dcgm", "reload"])))
        .collect();
    calls.into_iter().for_each(|call| drop(call.end().ok()));
    exporter.until_signals(2);
    let signals = exporter.signals();
    let apart = signals[1] - signals[0];
    // The moments are those of the exporter, which may be slow to see the first.
    assert!(apart > 4_000_000_000, "{apart} ns");
}

#[test]
fn reloads_once_for_each_change() {
    let _alone = alone();
    let world = World::small();
    world.configure("dcgm.reload_every = \"5s\"");
    let exporter = Exporter::start(&world);
    let if_changed = || reload(&world, &["--if-changed"]).len();
    world.create("one");
    assert_eq!((if_changed(), if_changed()), (1, 0));
    world.delete("one");
    // The driver gives the same id again.
    world.create("two");
    assert_eq!((if_changed(), if_changed()), (1, 0));
    exporter.until_signals(2);
}

/// SIGHUP would end it.
#[test]
fn spares_exporter_that_starts() {
    let _alone = alone();
    let world = World::small();
    world.configure("dcgm.reload_every = \"5s\"");
    let folder = world.path("starting");
    fs::create_dir(&folder).unwrap();
    let program = folder.join("dcgm-exporter");
    copy_program(Path::new("/bin/sleep"), &program);
    let mut starting = going(Command::new(&program).arg("1000"));
    let comm = format!("/proc/{}/comm", starting.pid());
    until("it is what it is called", || {
        fs::read_to_string(&comm).is_ok_and(|name| name == "dcgm-exporter\n")
    });
    let told = reload(&world, &["--if-changed"]);
    assert_eq!(told[0]["outcome"], "starts", "{told:?}");
    assert!(starting.ended().is_none());
    // It may have listed the instances before the last change.
    let exporter = Exporter::start(&world);
    assert_eq!(reload(&world, &["--if-changed"]).len(), 2);
    exporter.until_signals(1);
}

#[test]
fn says_that_no_exporter_runs() {
    let _alone = alone();
    let world = World::small();
    let said = said(&mut world.migctl(&["dcgm", "reload"])).refused();
    assert!(said.contains("no process of that name runs"), "{said}");
    assert!(!world.state().exists());
}

#[test]
fn damaged_note_reloads_at_once() {
    let _alone = alone();
    let world = World::small();
    let exporter = Exporter::start(&world);
    reload(&world, &[]);
    let note = world.state().join("dcgm-reload.json");
    let text = fs::read_to_string(&note).unwrap();
    for damaged in [&text[..text.len() / 2], &text.replace("/v1", "/v9")] {
        fs::write(&note, damaged).unwrap();
        assert_eq!(reload(&world, &["--if-changed"]).len(), 1);
    }
    exporter.until_signals(3);
}
