//! The life of a container with and without a slice, a share or a GPU: create, start and delete, one after the
//! other.

use super::measure::{Call, Cost, median};
use super::{Front, NVIDIA, bundle, table};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The mounts of a busy node: some ten for each pod.
const MOUNTS: usize = 1500;

/// A row: a name, and the program, bundle and machine of its containers.
struct Row {
    name: &'static str,
    program: PathBuf,
    bundle: PathBuf,
    machine: PathBuf,
}

struct Lives<'a> {
    work: &'a Path,
    sim: &'a Path,
}

pub fn run(work: &Path, sim: &Path, front: &Front, rounds: usize) {
    let lives = Lives { work, sim };
    let (with_mig, without) = (
        lives.machine("A100-80GB", "none"),
        lives.machine("L4", "none"),
    );
    let with_mps = lives.machine("L4", "mps");
    let real = nvidias_control().map(|program| lives.with_control(&program));
    let row = |name, program: &Path, asks, machine: &Path| Row {
        name,
        program: program.to_owned(),
        bundle: bundle::make(&work.join(format!("bundle of {name}")), asks),
        machine: machine.to_owned(),
    };
    let runc = bundle::on_path("runc");
    let runmig = |name, asks, machine| row(name, &front.program, asks, machine);
    let slice = runmig("runmig, 1g.10gb", bundle::SLICE, &with_mig);
    let mut rows = vec![
        row("runc", &runc, None, &with_mig),
        row("runc, nodes and hook of a slice", &runc, None, &with_mig),
        runmig("runmig, not asked", None, &with_mig),
    ];
    lives.give_away(&slice, &rows[1]);
    rows.push(slice);
    let share = Some(("runmig.dev/share", "8Gi"));
    rows.push(runmig("runmig, share of 8Gi at none", share, &without));
    rows.push(runmig(
        "runmig, whole GPU",
        Some(("runmig.dev/gpu", "1")),
        &without,
    ));
    rows.push(runmig("runmig, share of 8Gi at mps", share, &with_mps));
    if let Some(machine) = &real {
        rows.push(runmig(
            "the same with NVIDIA's control program",
            share,
            machine,
        ));
    }
    if let Some(nvidia) = bundle::find(NVIDIA) {
        rows.push(row(NVIDIA, &nvidia, None, &with_mig));
    }
    // The level driver wants cgroup v2 at its place, so runc stands beside it in the same surroundings.
    let with_limits = lives.machine("L4", "driver");
    let in_v2 = |program: &Path| lives.with_cgroup2(program);
    let v2 = rows.len();
    rows.push(row(
        "runc, with cgroup v2 alone",
        &in_v2(&runc),
        None,
        &with_limits,
    ));
    rows.push(row(
        "runmig, share of 8Gi at driver, so too",
        &in_v2(&front.program),
        share,
        &with_limits,
    ));
    // A life is three calls; the last cell of each row is the whole.
    let mut costs = vec![[const { Vec::new() }; 4]; rows.len()];
    for round in 0..rounds + 2 {
        for (row, costs) in rows.iter().zip(&mut costs) {
            let life = lives.live(row);
            if round >= 2 {
                let whole = life.iter().fold(Cost::default(), |sum, cost| sum + *cost);
                for (costs, cost) in costs.iter_mut().zip(life.into_iter().chain([whole])) {
                    costs.push(cost);
                }
            }
        }
    }

    println!("A container's life, medians of {rounds}, wall ms (CPU ms)");
    let cell = |costs: &Vec<Cost>| {
        let (wall, cpu) = (median(costs, |c| c.wall), median(costs, |c| c.cpu));
        format!("{:.2} ({:.2})", wall * 1e3, cpu * 1e3)
    };
    let cells = rows.iter().zip(&costs).map(|(row, costs)| {
        let mut cells = vec![row.name.to_owned()];
        cells.extend(costs.iter().map(cell));
        cells
    });
    table::print(
        &["", "create", "start", "delete", "all"],
        &cells.collect::<Vec<_>>(),
    );
    let cpu = |row: usize| median(&costs[row][3], |c| c.cpu) * 1e3;
    let (calls, driver) = lives.driver(&rows[3], rounds.clamp(1, 10));
    let (runcs, given) = (cpu(0), cpu(1) - cpu(0));
    let added = cpu(3) - runcs;
    println!(
        "a slice adds {added:.2} ms of CPU to runc's {runcs:.2} ms, of which\n\
         - the simulated driver takes {driver:.2} ms, for {calls:.0} calls\n\
         - runc takes {given:.2} ms, for the nodes, the device rules and a hook that does nothing\n\
         - runmig takes {:.2} ms\n\
         without the driver's part that is {:.2} of runc's (aim: at most 0.25), runmig's own part {:.2}",
        added - driver - given,
        (added - driver) / runcs,
        (added - driver - given) / runcs
    );
    for (n, row) in rows.iter().enumerate().skip(4).take(2) {
        let (calls, driver) = lives.driver(row, rounds.clamp(1, 10));
        println!(
            "{} adds {:.2} ms without the {driver:.2} ms of the driver's {calls:.0} calls (aim: at most 3)",
            row.name,
            cpu(n) - runcs - driver
        );
    }
    let (_, driver) = lives.driver(&rows[6], rounds.clamp(1, 10));
    let control = Call::new(&with_mps.join("usr/bin/nvidia-cuda-mps-control"), &["-h"]);
    let control: Vec<Cost> = (0..rounds).map(|_| control.run()).collect();
    // It is asked for its options, sets the limit, and reads it.
    let control = 3.0 * median(&control, |c| c.cpu) * 1e3;
    // Round by round, since the rest of the machine changes meanwhile.
    let longer = |row: usize, call: usize| {
        let pairs = costs[row][call].iter().zip(&costs[4][call]);
        let mut all: Vec<f64> = pairs
            .map(|(with, without)| with.wall - without.wall)
            .collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2] * 1e3
    };
    println!(
        "{} adds {:.2} ms without the driver's {driver:.2} ms and the {control:.2} ms of the control program's three \
         runs (aim: at most 8); its daemon makes the create {:.0} ms longer (aim: at most 100)",
        rows[6].name,
        cpu(6) - runcs - driver - control,
        longer(6, 0)
    );
    let (calls, driver) = lives.driver(&rows[v2 + 1], rounds.clamp(1, 10));
    println!(
        "{} adds {:.2} ms without the {driver:.2} ms of the driver's {calls:.0} calls (aim: at most 5)",
        rows[v2 + 1].name,
        cpu(v2 + 1) - cpu(v2) - driver
    );
    let [runcs, slices] = lives.beside_mounts([&rows[0], &rows[3]], rounds);
    println!(
        "beside {MOUNTS} mounts, as of some 150 pods, runc takes {runcs:.2} ms, and a slice adds {:.2} ms",
        slices - runcs
    );
    match real {
        Some(_) => println!(
            "with NVIDIA's control program, the daemon's start, limit and read back make the create {:.0} ms longer \
             than at none (aim: at most 100), and its end the delete {:.0} ms",
            longer(7, 0),
            longer(7, 2)
        ),
        None => println!(
            "NVIDIA's control program is not there: run scripts/fetch-nvidia-clients to measure it"
        ),
    }
}

impl Lives<'_> {
    /// Makes a machine with one GPU whose shares have this level, and its configuration beside it.
    fn machine(&self, gpu: &str, level: &str) -> PathBuf {
        // The path of a daemon's socket has to be short.
        let machine = self.work.join(format!("{gpu}-{level}"));
        let mut new = Command::new(self.sim);
        new.arg("new").arg(&machine).args(["--gpu", gpu]);
        match level {
            "mps" => drop(new.arg("--mps")),
            "driver" => drop(new.args(["--driver", "615"])),
            _ => {}
        }
        assert!(new.output().expect("nvml-sim").status.success());
        let state = machine.with_extension("state");
        let config = config_of(&machine);
        bundle::configure(&config, &machine, &state);
        let text = std::fs::read_to_string(&config).expect("the configuration");
        bundle::write(
            &config,
            &text.replace("[\"none\"]", &format!("[\"{level}\"]")),
        );
        machine
    }

    /// Makes a machine whose shares have a daemon of NVIDIA's own program.
    fn with_control(&self, program: &Path) -> PathBuf {
        let machine = self.machine("A10", "mps");
        let front = self.work.join("control");
        // That of driver 535 has no server for several users, which matters to clients alone.
        let script = format!(
            "#!/bin/sh\ncase $1 in\n-h) echo '-M,--multiuser-server' ;;\n-f) exec {0} -f ;;\n*) exec {0} \"$@\" ;;\nesac\n",
            program.display()
        );
        bundle::write(&front, &script);
        std::fs::set_permissions(&front, PermissionsExt::from_mode(0o755)).expect("a mode");
        let config = config_of(&machine);
        let text = std::fs::read_to_string(&config).expect("the configuration");
        let control = format!("sharing.mps_control = \"{}\"\n[driver]", front.display());
        bundle::write(&config, &text.replace("[driver]", &control));
        machine
    }

    /// Returns a program that runs another one in a mount namespace with cgroup v2 alone.
    fn with_cgroup2(&self, program: &Path) -> PathBuf {
        let name = program.file_name().expect("a name").to_string_lossy();
        let front = self.work.join(format!("{name}-v2"));
        let script = format!(
            "#!/bin/sh\nexec unshare -m /bin/sh -c 'mount -t cgroup2 none /sys/fs/cgroup && exec {0} \"$@\"' {0} \"$@\"\n",
            program.display()
        );
        bundle::write(&front, &script);
        std::fs::set_permissions(&front, PermissionsExt::from_mode(0o755)).expect("a mode");
        front
    }

    fn live(&self, row: &Row) -> [Cost; 3] {
        let bundle = row.bundle.to_str().unwrap();
        [
            self.call(row, &["create", "--bundle", bundle]),
            self.call(row, &["start"]),
            self.call(row, &["delete", "--force"]),
        ]
    }

    fn call(&self, row: &Row, arguments: &[&str]) -> Cost {
        let (root, id) = (self.work.join("root"), std::process::id().to_string());
        let all = [&["--root", root.to_str().unwrap()], arguments, &[&id]].concat();
        let call = Call::new(&row.program, &all).env("RUNMIG_CONFIG", &config_of(&row.machine));
        let cost = call.run();
        assert_eq!(cost.status, 0, "{} {all:?}", row.name);
        cost
    }

    /// Returns the CPU time of lives on a machine with many mounts, medians in milliseconds.
    fn beside_mounts<const N: usize>(&self, rows: [&Row; N], rounds: usize) -> [f64; N] {
        let measure = || {
            unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount::<str, _, str, str>(None, "/", None, private, None).expect("private mounts");
            for n in 0..MOUNTS {
                let at = self.work.join(format!("mounts/{n}"));
                std::fs::create_dir_all(&at).expect("a folder");
                let of = (Some("none"), Some("tmpfs"));
                mount::<_, _, _, str>(of.0, &at, of.1, MsFlags::empty(), None).expect("a mount");
            }
            let whole = |row| {
                self.live(row)
                    .into_iter()
                    .fold(Cost::default(), |sum, c| sum + c)
            };
            rows.map(|row| {
                let all: Vec<Cost> = (0..rounds).map(|_| whole(row)).collect();
                median(&all, |c| c.cpu) * 1e3
            })
        };
        // The namespace is of this thread and its children, and ends with it.
        std::thread::scope(|scope| scope.spawn(measure).join().expect("a thread"))
    }

    /// Gives another container the `config.json` of a container with a slice, with a hook that does
    /// nothing in place of runmig's.
    fn give_away(&self, from: &Row, to: &Row) {
        let bundle = from.bundle.to_str().unwrap();
        self.call(from, &["create", "--bundle", bundle]);
        let file = from.bundle.join("config.json");
        let text = std::fs::read(&file).expect("config.json");
        self.call(from, &["delete", "--force"]);
        let mut config: Value = serde_json::from_slice(&text).expect("JSON");
        let nothing = self.work.join("hook");
        bundle::compile(&nothing, "int main(void) { return 0; }");
        let hooks = config["hooks"].as_object_mut().expect("hooks");
        for hook in hooks
            .values_mut()
            .flat_map(|all| all.as_array_mut().unwrap())
        {
            *hook = json!({ "path": nothing });
        }
        bundle::write(&to.bundle.join("config.json"), &config.to_string());
    }

    /// Returns the driver calls of a life and the CPU time of their functions, in milliseconds.
    fn driver(&self, row: &Row, rounds: usize) -> (f64, f64) {
        self.trace(row, "on");
        for _ in 0..rounds {
            self.live(row);
        }
        self.trace(row, "off");
        let log = self.trace(row, "show");
        let nanoseconds = |line: &str| line.split(' ').nth(2)?.parse().ok();
        let calls: Vec<f64> = log.lines().filter_map(nanoseconds).collect();
        let each = |sum: f64| sum / rounds as f64;
        (each(calls.len() as f64), each(calls.iter().sum()) / 1e6)
    }

    fn trace(&self, row: &Row, what: &str) -> String {
        let mut command = Command::new(self.sim);
        let output = command.arg("trace").arg(&row.machine).arg(what).output();
        String::from_utf8(output.expect("nvml-sim").stdout).expect("text")
    }
}

/// Returns NVIDIA's program, as `scripts/fetch-nvidia-clients` puts it beside the build.
fn nvidias_control() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let program = target.join("nvidia-clients/bin/nvidia-cuda-mps-control");
    std::fs::canonicalize(program).ok()
}

fn config_of(machine: &Path) -> PathBuf {
    machine.with_extension("toml")
}
