//! Creates on a large machine that begin at the same moment.

use super::measure::{Cost, children, median};
use super::{Front, bundle, table};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const GPUS: usize = 8;
/// As many as the machine has room for.
const CREATES: usize = 7 * GPUS;

struct Crowd<'a> {
    name: &'static str,
    program: &'a Path,
    config: PathBuf,
    root: PathBuf,
    bundles: Vec<PathBuf>,
}

pub fn run(work: &Path, sim: &Path, front: &Front, rounds: usize) {
    let machine = work.join("crowd");
    let mut new = Command::new(sim);
    new.arg("new").arg(&machine);
    new.args(["--gpu", "A100-80GB", "--count", &GPUS.to_string()]);
    assert!(new.output().expect("nvml-sim").status.success());
    let before = std::env::var_os("BENCH_BEFORE").map(PathBuf::from);
    let mut programs = vec![("runmig", front.program.as_path())];
    programs.extend(before.as_deref().map(|path| ("another runmig", path)));
    let crowds: Vec<Crowd> = { programs.into_iter().enumerate() }
        .map(|(n, (name, program))| {
            Crowd::new(&work.join(format!("crowd{n}")), &machine, name, program)
        })
        .collect();
    let mut costs = vec![Vec::new(); crowds.len()];
    for _ in 0..rounds.max(1) {
        for (crowd, costs) in crowds.iter().zip(&mut costs) {
            costs.push(crowd.create());
            crowd.delete();
        }
    }
    let rows = crowds.iter().zip(&costs).map(|(crowd, costs)| {
        let (wall, cpu) = (median(costs, |c| c.wall), median(costs, |c| c.cpu));
        let milliseconds = |seconds: f64| format!("{:.0}", seconds * 1e3);
        vec![crowd.name.to_owned(), milliseconds(wall), milliseconds(cpu)]
    });
    println!(
        "{CREATES} creates at once on {GPUS} GPUs, medians of {}",
        rounds.max(1)
    );
    table::print(&["", "wall ms", "CPU ms"], &rows.collect::<Vec<_>>());
    println!();
}

impl<'a> Crowd<'a> {
    fn new(folder: &Path, machine: &Path, name: &'static str, program: &'a Path) -> Crowd<'a> {
        std::fs::create_dir(folder).expect("a folder");
        let config = folder.join("config.toml");
        bundle::configure(&config, machine, &folder.join("state"));
        let first = bundle::make(&folder.join("0"), bundle::SLICE);
        let others = (1..CREATES).map(|n| bundle::copy(&first, &folder.join(n.to_string())));
        let others: Vec<PathBuf> = others.collect();
        Crowd {
            name,
            program,
            config,
            root: folder.join("root"),
            bundles: [vec![first], others].concat(),
        }
    }

    fn create(&self) -> Cost {
        let (begin, before) = (Instant::now(), children());
        let create = |(n, bundle): (usize, &PathBuf)| {
            let mut command = self.command("create");
            command.arg("--bundle").arg(bundle).arg(n.to_string());
            command.spawn().expect("runmig")
        };
        let creates: Vec<Child> = self.bundles.iter().enumerate().map(create).collect();
        for mut create in creates {
            assert!(create.wait().expect("runmig").success(), "{}", self.name);
        }
        Cost {
            wall: begin.elapsed().as_secs_f64(),
            cpu: children() - before,
            ..Cost::default()
        }
    }

    fn delete(&self) {
        for n in 0..self.bundles.len() {
            let mut command = self.command("delete");
            let status = command.arg("--force").arg(n.to_string()).status();
            assert!(status.expect("runmig").success(), "{}", self.name);
        }
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(self.program);
        command.env("RUNMIG_CONFIG", &self.config);
        command.arg("--root").arg(&self.root).arg(verb);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}
