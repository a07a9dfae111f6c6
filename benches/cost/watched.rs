//! The cost of being watched: history in a create, an exposition of many slices, and creates
//! beside scrapes.

use super::measure::{Call, Cost, median};
use super::{Front, bundle, table};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const GPUS: usize = 8;
const SLICES: usize = 7 * GPUS;
/// The lives between two changes of the scrapes.
const LIVES: usize = 5;

pub fn run(work: &Path, sim: &Path, front: &Front, rounds: usize) {
    let folder = work.join("watched");
    std::fs::create_dir(&folder).expect("a folder");
    sinks(&folder, sim, front, rounds);
    scrapes(&folder, sim, front, rounds);
}

/// A machine with its ledger, and a bundle.
struct Place<'a> {
    front: &'a Front,
    config: PathBuf,
    root: PathBuf,
    bundle: PathBuf,
}

impl<'a> Place<'a> {
    fn new(folder: &Path, sim: &Path, front: &'a Front, gpus: usize) -> Place<'a> {
        let machine = folder.join("machine");
        let mut new = Command::new(sim);
        new.arg("new").arg(&machine);
        new.args(["--gpu", "A100-80GB", "--count", &gpus.to_string()]);
        assert!(new.output().expect("nvml-sim").status.success());
        let config = folder.join("config.toml");
        bundle::configure(&config, &machine, &folder.join("state"));
        Place {
            front,
            config,
            root: folder.join("root"),
            bundle: bundle::make(&folder.join("bundle"), bundle::SLICE),
        }
    }

    fn configure(&self, before: &str) {
        let text = std::fs::read_to_string(&self.config).expect("the configuration");
        bundle::write(&self.config, &format!("{before}\n{text}"));
    }

    fn create(&self, bundle: &Path, id: &str) -> Cost {
        self.call(&["create", "--bundle", bundle.to_str().expect("UTF-8"), id])
    }

    fn delete(&self, id: &str) -> Cost {
        self.call(&["delete", "--force", id])
    }

    fn call(&self, arguments: &[&str]) -> Cost {
        let all = [&["--root", self.root.to_str().expect("UTF-8")], arguments].concat();
        let cost = self.with_config(&self.front.program, &all).run();
        assert_eq!(cost.status, 0, "{arguments:?}");
        cost
    }

    fn with_config(&self, program: &Path, arguments: &[&str]) -> Call {
        Call::new(program, arguments).env("RUNMIG_CONFIG", &self.config)
    }

    fn migctl(&self) -> PathBuf {
        self.front.program.with_file_name("migctl")
    }
}

/// A create with and without the history. Its counters travel with its changes of the ledger.
fn sinks(work: &Path, sim: &Path, front: &Front, rounds: usize) {
    let rows = ["counters", "counters, events"];
    let places: Vec<Place> = { rows.iter().enumerate() }
        .map(|(n, _)| {
            let folder = work.join(n.to_string());
            std::fs::create_dir(&folder).expect("a folder");
            let place = Place::new(&folder, sim, front, 1);
            if n == 0 {
                place.configure("events.file = \"\"");
            }
            place
        })
        .collect();
    let mut costs = vec![Vec::new(); places.len()];
    for round in 0..rounds + 2 {
        for (place, costs) in places.iter().zip(&mut costs) {
            let cost = place.create(&place.bundle, "watched");
            place.delete("watched");
            if round >= 2 {
                costs.push(cost);
            }
        }
    }
    // Round by round, since the rest of the machine changes meanwhile.
    let ratio = |row: usize| {
        let pairs = costs[row].iter().zip(&costs[0]);
        let mut all: Vec<f64> = pairs
            .map(|(with, without)| with.cpu / without.cpu)
            .collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    println!("A create and its events, medians of {rounds}");
    let cells = rows.iter().enumerate().map(|(row, name)| {
        let cpu = median(&costs[row], |c| c.cpu) * 1e3;
        vec![
            (*name).to_owned(),
            format!("{cpu:.2}"),
            format!("{:.3}", ratio(row)),
        ]
    });
    table::print(&["", "CPU ms", "counters = 1"], &cells.collect::<Vec<_>>());
    println!(
        "With events it takes {:.3} of the CPU (aim: at most 1.03)\n",
        ratio(1)
    );
}

/// An exposition of a full machine, and lives beside scrapes.
fn scrapes(work: &Path, sim: &Path, front: &Front, rounds: usize) {
    let folder = work.join("full");
    std::fs::create_dir(&folder).expect("a folder");
    let place = Place::new(&folder, sim, front, GPUS);
    let ids: Vec<String> = (1..SLICES).map(|n| n.to_string()).collect();
    for id in &ids {
        let bundle = bundle::copy(&place.bundle, &folder.join(format!("bundle{id}")));
        place.create(&bundle, id);
    }
    let mut lives = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (scraped, lives) in lives.iter_mut().enumerate() {
            let scraper = (scraped == 1).then(|| Scraper::start(&place));
            let whole = (0..LIVES).map(|_| place.create(&place.bundle, "0") + place.delete("0"));
            lives.push(whole.fold(Cost::default(), |sum, cost| sum + cost));
            drop(scraper);
        }
    }
    place.create(&place.bundle, "0");
    for verb in ["metrics", "list"] {
        let call = place.with_config(&place.migctl(), &[verb]);
        let calls: Vec<Cost> = (0..rounds).map(|_| call.run()).collect();
        assert!(calls.iter().all(|cost| cost.status == 0), "migctl {verb}");
        println!(
            "migctl {verb}, {GPUS} GPUs, {SLICES} slices: {:.1} ms of CPU, {:.1} ms, {:.1} MiB at most, medians of {rounds}",
            median(&calls, |c| c.cpu) * 1e3,
            median(&calls, |c| c.wall) * 1e3,
            median(&calls, |c| c.peak) / f64::from(1 << 20)
        );
    }
    let rate = |lives: &[Cost]| LIVES as f64 / median(lives, |c| c.wall);
    let (without, with) = (rate(&lives[0]), rate(&lives[1]));
    println!(
        "Lives a second, one after the other: {without:.2}, and {with:.2} beside 5 scrapes a second: {:.3} of it \
         (aim: at least 0.98)\n",
        with / without
    );
    place.delete("0");
    for id in &ids {
        place.delete(id);
    }
}

/// Five scrapes a second, until it is dropped.
struct Scraper(Child);

impl Scraper {
    fn start(place: &Place) -> Scraper {
        let script = format!(
            "while :; do {} metrics >/dev/null & sleep 0.2; wait; done",
            place.migctl().display()
        );
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", &script])
            .env("RUNMIG_CONFIG", &place.config);
        shell.stdin(Stdio::null()).process_group(0);
        Scraper(shell.spawn().expect("sh"))
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::SIGKILL);
        let _ = self.0.wait();
    }
}
