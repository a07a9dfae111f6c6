//! Measures the cost of runmig. `scripts/bench` runs it and says what it needs.
//!
//! Each thing that is measured is run in turn, round after round, so that what else the machine
//! does falls on all alike; medians are printed, and nothing is asserted. Processes are forked by a
//! small parent and waited for with their own resource usage, which includes that of the children
//! they waited for: a low-level runtime and the hook it runs.

#[path = "cost/bundle.rs"]
mod bundle;
#[path = "cost/choice.rs"]
mod choice;
#[path = "cost/collecting.rs"]
mod collecting;
#[path = "cost/doctor.rs"]
mod doctor;
#[path = "cost/driver.rs"]
mod driver;
#[path = "cost/lives.rs"]
mod lives;
#[path = "cost/measure.rs"]
mod measure;
#[path = "cost/table.rs"]
mod table;
#[path = "cost/together.rs"]
mod together;
#[path = "cost/watched.rs"]
mod watched;

use measure::{Call, Cost, median};
use std::path::{Path, PathBuf};

fn main() {
    let number = |name: &str, default: usize| match std::env::var(name) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => default,
    };
    // Bundles and the ledger are on a tmpfs in real life too.
    let memory = Path::new("/dev/shm");
    let temporary = std::env::temp_dir();
    let place = if memory.is_dir() { memory } else { &temporary };
    let work = tempfile::Builder::new()
        .prefix("runmig-bench-")
        .tempdir_in(place)
        .expect("a temporary folder");
    let front = Front::install(work.path());
    pass_through(work.path(), &front, number("BENCH_CALLS", 1000));
    let sim = Path::new(env!("CARGO_BIN_EXE_runmig")).with_file_name("nvml-sim");
    assert!(
        sim.exists(),
        "build the simulated driver: cargo build --release -p nvml-sim"
    );
    choice::run();
    collecting::run(work.path(), &sim, number("BENCH_COLLECTIONS", 5));
    driver::run(work.path(), &sim, number("BENCH_LOCKS", 5));
    let bin = front.program.parent().expect("a folder");
    doctor::run(work.path(), &sim, bin, number("BENCH_LOOKS", 20));
    watched::run(work.path(), &sim, &front, number("BENCH_WATCHED", 20));
    together::run(work.path(), &sim, &front, number("BENCH_CROWDS", 5));
    lives::run(work.path(), &sim, &front, number("BENCH_LIVES", 40));
}

const NVIDIA: &str = "nvidia-container-runtime";

/// runmig as `scripts/install` leaves it, with the programs that it needs beside it.
struct Front {
    program: PathBuf,
    linked: &'static str,
}

impl Front {
    fn install(work: &Path) -> Front {
        let built = Path::new(env!("CARGO_BIN_EXE_runmig"));
        let (from, linked) = match std::env::var_os("BENCH_STATIC") {
            Some(front) => (PathBuf::from(front), "statically, as scripts/install does"),
            None => (built.to_owned(), "dynamically"),
        };
        let bin = work.join("bin");
        std::fs::create_dir(&bin).expect("a folder");
        let program = bin.join("runmig");
        std::fs::copy(from, &program).expect("a copy of runmig");
        for name in ["runmig-slice", "runmig-hook", "migctl"] {
            std::fs::copy(built.with_file_name(name), bin.join(name)).expect("a copy");
        }
        Front { program, linked }
    }
}

fn pass_through(work: &Path, front: &Front, rounds: usize) {
    // As little as a low-level runtime can be.
    let nothing = work.join("runc");
    bundle::compile(&nothing, "int main(void) { return 0; }");
    let config = work.join("pass.toml");
    bundle::write(&config, &format!("runtime = \"{}\"\n", nothing.display()));
    let own = |program: &Path| Call::new(program, &["state", "x"]).env("RUNMIG_CONFIG", &config);
    // As little as a program before it can be.
    let only_executes = work.join("only-executes");
    let source = format!(
        "#include <unistd.h>\nint main(int c, char **v, char **e) {{ return execve(\"{}\", v, e); }}",
        nothing.display()
    );
    bundle::compile(&only_executes, &source);
    let mut calls = vec![
        ("/bin/true", Call::new(Path::new("/bin/true"), &[])),
        ("a static runtime that does nothing", own(&nothing)),
        ("the same behind runmig", own(&front.program)),
        (
            "the same behind a static program that only executes it",
            own(&only_executes),
        ),
        (
            "runmig --version, runc behind it",
            runc_version(work, &front.program),
        ),
        (
            "runc --version",
            Call::new(&bundle::on_path("runc"), &["--version"]),
        ),
    ];
    if let Some(nvidia) = bundle::find(NVIDIA) {
        let name = "the same behind nvidia-container-runtime";
        calls.push((name, behind_nvidia(work, &nvidia, &nothing)));
    }
    let nvidia = (calls.len() > 6).then_some(6);
    if let Some(before) = std::env::var_os("BENCH_BEFORE") {
        calls.push(("the same behind another runmig", own(Path::new(&before))));
    }
    let deletes = calls.len();
    for (name, count) in [
        ("a delete without a lease", 0),
        ("the same beside 400 leases", 400),
    ] {
        let (state, config) = (
            work.join(format!("beside-{count}")),
            work.join(format!("beside-{count}.toml")),
        );
        collecting::leave(&state, count, work);
        let text = format!(
            "runtime = \"{}\"\nstate_dir = \"{}\"\n",
            nothing.display(),
            state.display()
        );
        bundle::write(&config, &text);
        let delete = Call::new(&front.program, &["delete", "x"]);
        calls.push((name, delete.env("RUNMIG_CONFIG", &config)));
    }
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); calls.len()];
    for round in 0..rounds + 10 {
        for ((_, call), costs) in calls.iter().zip(&mut costs) {
            let cost = call.run();
            // The first rounds fill caches.
            if round >= 10 {
                costs.push(cost);
            }
        }
    }
    let base = median(&costs[0], |c| c.wall);
    let rows = calls.iter().zip(&costs).map(|((name, _), costs)| {
        let wall = median(costs, |c| c.wall);
        vec![
            (*name).to_owned(),
            format!("{:.3}", wall * 1e3),
            format!("{:.2}", wall / base),
            format!("{:.3}", median(costs, |c| c.cpu) * 1e3),
            format!("{:.2}", median(costs, |c| c.peak) / f64::from(1 << 20)),
        ]
    });
    println!(
        "A call that does not ask, medians of {rounds}, runmig linked {}",
        front.linked
    );
    table::print(
        &["", "wall ms", "/bin/true = 1", "CPU ms", "peak MiB"],
        &rows.collect::<Vec<_>>(),
    );
    let of = |call: usize, value: fn(&Cost) -> f64| median(&costs[call], value);
    let added = |call: usize| of(call, |c| c.wall) - of(1, |c| c.wall);
    println!(
        "runmig adds {:.3} ms where /bin/true takes {:.3} ms: {:.2} of it",
        added(2) * 1e3,
        base * 1e3,
        added(2) / base
    );
    if let Some(nvidia) = nvidia {
        println!(
            "runmig adds {:.2} of what nvidia-container-runtime adds",
            added(2) / added(nvidia)
        );
    }
    let ratio = |value: fn(&Cost) -> f64| of(2, value) / of(3, value);
    println!(
        "runmig takes {:.2} of the wall and {:.2} of the CPU of the static program that only executes \
         the runtime (aim: at most 1.3)",
        ratio(|c| c.wall),
        ratio(|c| c.cpu)
    );
    println!(
        "A delete without a lease takes {:.2} of its wall beside 400 leases (aim: at most 1.1)\n",
        of(deletes + 1, |c| c.wall) / of(deletes, |c| c.wall)
    );
}

/// nvidia-container-runtime reads the folder of its configuration from the environment.
fn behind_nvidia(work: &Path, nvidia: &Path, runtime: &Path) -> Call {
    let home = work.join("nvidia");
    let folder = home.join(NVIDIA);
    std::fs::create_dir_all(&folder).expect("a folder");
    bundle::write(
        &folder.join("config.toml"),
        &format!(
            "[nvidia-container-runtime]\nruntimes = [\"{}\"]\n",
            runtime.display()
        ),
    );
    Call::new(nvidia, &["state", "x"]).env("XDG_CONFIG_HOME", &home)
}

fn runc_version(work: &Path, runmig: &Path) -> Call {
    let config = work.join("runc.toml");
    let runc = bundle::on_path("runc");
    bundle::write(&config, &format!("runtime = \"{}\"\n", runc.display()));
    Call::new(runmig, &["--version"]).env("RUNMIG_CONFIG", &config)
}
