//! The calls that a create makes to the driver on a large machine, and those under the plan's lock, for
//! which other creates wait.

use super::bundle;
use super::table;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const GPUS: u32 = 8;
const SLICES_EACH: u32 = 5;
/// The time that each call takes while the lock is watched.
const TAKES: &str = "1ms";

struct Machine {
    sim: PathBuf,
    dir: PathBuf,
    state: PathBuf,
    config: PathBuf,
    bundle: PathBuf,
}

pub fn run(work: &Path, sim: &Path, rounds: usize) {
    let machine = Machine::new(work, sim);
    let cold = machine.calls("create");
    let mut rows = vec![row("the first create", &cold)];
    let delete = machine.calls("delete");
    rows.push(row("a later create", &machine.calls("create")));
    rows.push(row("delete", &delete));
    machine.run("delete");
    println!(
        "Driver calls on {GPUS} GPUs with {} slices",
        GPUS * SLICES_EACH
    );
    table::print(&["", "calls", "functions"], &rows);
    machine.sim("fault", &["--call", "*", "--takes", TAKES]);
    let mut held: Vec<(f64, usize)> = (0..rounds.max(1))
        .map(|_| {
            let held = machine.under_lock();
            machine.run("delete");
            held
        })
        .collect();
    held.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (seconds, calls) = held[held.len() / 2];
    println!(
        "a later create holds the plan's lock for {:.0} ms and {calls} calls, where each call takes {TAKES} \
         (median of {})\n",
        seconds * 1e3,
        held.len()
    );
}

fn row(name: &str, calls: &[String]) -> Vec<String> {
    let functions: BTreeSet<&String> = calls.iter().collect();
    vec![
        name.to_owned(),
        calls.len().to_string(),
        functions.len().to_string(),
    ]
}

impl Machine {
    fn new(work: &Path, sim: &Path) -> Machine {
        let dir = work.join("large");
        let machine = Machine {
            sim: sim.to_owned(),
            state: work.join("large-state"),
            config: work.join("large.toml"),
            bundle: bundle::make(&work.join("large-bundle"), bundle::SLICE),
            dir,
        };
        let gpus: Vec<&str> = (0..GPUS).flat_map(|_| ["--gpu", "A100-80GB"]).collect();
        machine.sim("new", &gpus);
        for gpu in 0..GPUS {
            for _ in 0..SLICES_EACH {
                let gpu = gpu.to_string();
                machine.sim("create", &["--gpu", &gpu, "--profile", "1g.10gb"]);
            }
        }
        bundle::configure(&machine.config, &machine.dir, &machine.state);
        machine
    }

    fn sim(&self, verb: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.sim);
        let out = command.arg(verb).arg(&self.dir).args(arguments).output();
        let out = out.expect("nvml-sim");
        assert!(out.status.success(), "nvml-sim {verb}");
        String::from_utf8(out.stdout).expect("text")
    }

    fn run(&self, verb: &str) {
        assert!(self.succeeds(verb), "{verb}");
    }

    fn succeeds(&self, verb: &str) -> bool {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runmig"));
        command.env("RUNMIG_CONFIG", &self.config);
        command.arg("--root").arg(self.dir.join("root")).arg(verb);
        match verb {
            "create" => command.arg("--bundle").arg(&self.bundle),
            _ => command.arg("--force"),
        };
        let quiet = command.arg("large").stdin(Stdio::null());
        let status = quiet.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.expect("runmig").success()
    }

    /// Returns the name of each driver call of a command.
    fn calls(&self, verb: &str) -> Vec<String> {
        self.sim("trace", &["on"]);
        self.run(verb);
        self.sim("trace", &["off"]);
        let log = self.sim("trace", &["show"]);
        let name = |line: &str| line.split(' ').nth(1).map(str::to_owned);
        log.lines().filter_map(name).collect()
    }

    /// Returns how long a create holds the plan's lock, in seconds, and its driver calls meanwhile.
    fn under_lock(&self) -> (f64, usize) {
        self.sim("trace", &["on"]);
        let lock = fs::metadata(self.state.join("plan.lock")).expect("plan.lock");
        let inode = format!(":{}", lock.ino());
        let log = self.dir.join("trace.log");
        let calls = || fs::read_to_string(&log).map_or(0, |log| log.lines().count());
        let ended = AtomicBool::new(false);
        let held = std::thread::scope(|threads| {
            let watch = threads.spawn(|| {
                let mut held: Option<[(Instant, usize); 2]> = None;
                while !ended.load(Ordering::Relaxed) {
                    let locks = fs::read_to_string("/proc/locks").expect("/proc/locks");
                    let word = |line: &str| line.split_whitespace().nth(5).map(str::to_owned);
                    if { locks.lines().filter_map(word) }.any(|file| file.ends_with(&inode)) {
                        let now = (Instant::now(), calls());
                        held.get_or_insert([now, now])[1] = now;
                    }
                }
                held
            });
            let succeeds = self.succeeds("create");
            ended.store(true, Ordering::Relaxed);
            assert!(succeeds, "create");
            watch.join().expect("the watcher")
        });
        self.sim("trace", &["off"]);
        let [first, last] = held.expect("the lock is held for some milliseconds");
        ((last.0 - first.0).as_secs_f64(), last.1 - first.1)
    }
}
