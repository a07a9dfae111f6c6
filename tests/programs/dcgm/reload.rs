//! `migctl dcgm reload`, beside processes that are called like dcgm-exporter.

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::sync::{Mutex, MutexGuard, PoisonError};
use testkit::prelude::*;

/// The one exporter of all tests, which has the age that a reload wants. A reload finds the processes of the whole
/// machine, so one test runs at a time.
static EXPORTER: Mutex<Option<Exporter>> = Mutex::new(None);

fn shared() -> MutexGuard<'static, Option<Exporter>> {
    EXPORTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process by the exporter's name. It writes the moment of each SIGHUP, in nanoseconds, into a file, and ends with the
/// tests.
struct Exporter {
    going: Going,
    folder: TempDir,
    /// The signals before this test.
    before: usize,
}

impl Exporter {
    fn start() -> Exporter {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("dcgm-exporter");
        copy_program(Path::new("/bin/bash"), &program);
        let signals = folder.path().join("signals");
        let pipe = folder.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        // It starts no process: until that calls exec, it would have the exporter's name, too.
        let script = format!(
            "trap 'echo ${{EPOCHREALTIME//[.,]/}}000 >>{}' HUP; exec 3<>{}; echo ready
             while kill -0 {}; do read -t 0.05 -u 3; done",
            signals.display(),
            pipe.display(),
            std::process::id()
        );
        // Below nohup the signal is ignored, and a shell cannot trap it then.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(&program);
        let mut going = going(command.args(["-c", &script]));
        going.until("ready");
        Exporter {
            going,
            folder,
            before: 0,
        }
    }

    /// Returns the exporter of all tests, as old as a reload wants it.
    fn grown(shared: &mut Option<Exporter>) -> &Exporter {
        let exporter = shared.get_or_insert_with(Exporter::start);
        let started = runmig_lease::process::of(exporter.going.pid()).unwrap();
        until("the exporter is 11 s old", || {
            let uptime = fs::read_to_string("/proc/uptime").unwrap();
            let seconds: u64 = uptime.split('.').next().unwrap().parse().unwrap();
            seconds >= started.start_time / 100 + 11
        });
        exporter.before = exporter.all_signals().len();
        exporter
    }

    fn all_signals(&self) -> Vec<u128> {
        let file = self.folder.path().join("signals");
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn signals(&self) -> Vec<u128> {
        self.all_signals().split_off(self.before)
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
    let list = world.json(&all);
    assert_eq!(list["kind"], "ReloadList");
    list["items"].as_array().unwrap().clone()
}

/// A world whose configuration leaves 5 s between reloads.
fn patient() -> World {
    let world = World::small();
    world.configure("dcgm.reload_every = \"5s\"");
    world
}

/// What these reloads say of a process.
fn outcome(told: &[Value], pid: i32) -> Value {
    let found = told.iter().find(|item| item["pid"] == pid);
    found.map_or(Value::Null, |item| item["outcome"].clone())
}

/// The exporter drops a signal that comes too soon, so the second one waits; it is not lost.
/// Failure: two reloads at once, or a killed one
#[test]
fn second_reload_waits_its_turn() {
    let mut shared = shared();
    let exporter = Exporter::grown(&mut shared);
    let world = patient();
    let calls = [(); 2].map(|()| going(&mut world.migctl(&["dcgm", "reload"])));
    calls.into_iter().for_each(|call| drop(call.end().ok()));
    exporter.until_signals(2);
    let signals = exporter.signals();
    let apart = signals[1] - signals[0];
    // The moments are those of the exporter, which may be slow to see the first.
    assert!(apart > 4_000_000_000, "{apart} ns");
}

#[test]
fn reloads_once_for_each_change() {
    let mut shared = shared();
    let exporter = Exporter::grown(&mut shared);
    let world = patient();
    let if_changed = || reload(&world, &["--if-changed"]).len();
    world.create("one");
    assert_eq!((if_changed(), if_changed()), (1, 0));
    world.delete("one");
    // The driver gives the same id again.
    world.create("two");
    assert_eq!((if_changed(), if_changed()), (1, 0));
    exporter.until_signals(2);
}

/// SIGHUP could end it. It hears of the instances later, and the others are left alone.
#[test]
fn spares_exporter_that_starts() {
    let mut shared = shared();
    let exporter = Exporter::grown(&mut shared);
    let world = patient();
    let mut young = Exporter::start();
    let (grown, new) = (exporter.going.pid(), young.going.pid());
    let told = reload(&world, &["--if-changed"]);
    assert_eq!(outcome(&told, grown), "reloads", "{told:?}");
    assert_eq!(outcome(&told, new), "starts", "{told:?}");
    assert!(young.going.ended().is_none() && young.signals().is_empty());
    until("it is old enough", || {
        let told = reload(&world, &["--if-changed"]);
        assert_eq!(outcome(&told, grown), Value::Null, "{told:?}");
        outcome(&told, new) == "reloads"
    });
    young.until_signals(1);
    exporter.until_signals(1);
}

/// The signal would end it at any age.
#[test]
fn spares_exporter_without_handler() {
    let mut shared = shared();
    let exporter = Exporter::grown(&mut shared);
    let world = World::small();
    let program = world.path("dcgm-exporter");
    copy_program(Path::new("/bin/sleep"), &program);
    let mut sleeping = going(Command::new(&program).arg("1000"));
    let comm = format!("/proc/{}/comm", sleeping.pid());
    until("it is what it is called", || {
        fs::read_to_string(&comm).is_ok_and(|name| name == "dcgm-exporter\n")
    });
    let told = reload(&world, &[]);
    assert_eq!(outcome(&told, sleeping.pid()), "starts", "{told:?}");
    assert!(sleeping.ended().is_none());
    // No later test takes it for its own.
    exporter.until_signals(1);
}

/// Failure: no dcgm-exporter runs, or it has just started, at a reload
#[test]
fn says_that_no_exporter_runs() {
    let mut shared = shared();
    // The next test starts another.
    drop(shared.take());
    let world = World::small();
    let reload = world.ctl(&["dcgm", "reload"]);
    reload.refused_for("no process of that name runs");
    assert!(!world.state().exists());
}

#[test]
fn damaged_note_reloads_at_once() {
    let mut shared = shared();
    let exporter = Exporter::grown(&mut shared);
    let world = World::small();
    reload(&world, &[]);
    let note = world.state().join("dcgm-reload.json");
    let text = fs::read_to_string(&note).unwrap();
    for (sent, damaged) in (1..).zip([&text[..text.len() / 2], &text.replace("/v1", "/v9")]) {
        // Two signals that wait are one.
        exporter.until_signals(sent);
        fs::write(&note, damaged).unwrap();
        assert_eq!(reload(&world, &["--if-changed"]).len(), 1);
    }
    exporter.until_signals(3);
}
