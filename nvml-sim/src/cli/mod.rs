//! The `nvml-sim` program, a file a verb or a few that belong together; and `nvidia-smi`, in `smi`.

mod fault;
mod hold;
mod instances;
mod machine;
mod new;
mod show;
pub mod smi;
mod trace;

use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::engine::Machine;
use crate::holders::Files;
use crate::state::Store;

/// The failure of a verb: a line for people.
type Failure = Box<dyn std::error::Error>;

#[derive(Parser)]
#[command(
    name = "nvml-sim",
    version,
    about = "Simulated machines with MIG-capable GPUs"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a machine in a directory
    New(new::New),
    /// Print a machine
    Show(show::Show),
    /// Boot it: instances are gone, and so is MIG mode from Hopper on
    Reboot(machine::Dir),
    /// Reset a GPU: its instances are gone, a pending MIG mode is in force
    Reset(machine::OfGpu),
    /// Set MIG mode, reset included
    Mig(machine::Mig),
    /// Let a GPU fall off the bus: calls answer GPU_IS_LOST
    Lose(machine::OfGpu),
    /// Put a lost GPU back
    Restore(machine::OfGpu),
    /// Let a GPU be sick by the given signs, or well without one
    Health(machine::OfHealth),
    /// Hold a GPU or an instance until killed, so that calls answer IN_USE
    Hold(hold::Hold),
    /// Make a GPU instance and the compute instance that fills it
    Create(instances::Create),
    /// Destroy a GPU instance with its compute instances
    Destroy(instances::Destroy),
    /// Set what goes wrong, or how long calls take
    Fault(fault::Fault),
    /// Log every call
    Trace(trace::Trace),
}

pub fn main() -> ExitCode {
    crate::sys::end_with_reader();
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    match run(cli.verb, matches.subcommand().map(|(_, of_verb)| of_verb)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("nvml-sim: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb, matches: Option<&ArgMatches>) -> Result<(), Failure> {
    match verb {
        Verb::New(args) => args.run(matches),
        Verb::Show(args) => args.run(),
        Verb::Reboot(args) => args.reboot(),
        Verb::Reset(args) => args.reset(),
        Verb::Mig(args) => args.run(),
        Verb::Lose(args) => args.set_lost(true),
        Verb::Restore(args) => args.set_lost(false),
        Verb::Health(args) => args.set(),
        Verb::Hold(args) => args.run(),
        Verb::Create(args) => args.run(),
        Verb::Destroy(args) => args.run(),
        Verb::Fault(args) => args.run(),
        Verb::Trace(args) => args.run(),
    }
}

fn open(dir: &Path) -> Result<Store, Failure> {
    Store::open(dir).map_err(|e| format!("{} is not a machine: {e}", dir.display()).into())
}

/// Changes a machine as its administrator; `gpu` says whose files can differ.
fn change<T>(
    dir: &Path,
    gpu: Option<u32>,
    change: impl FnOnce(&mut Machine, &Files) -> Result<T, Failure>,
) -> Result<T, Failure> {
    open(dir)?.change(gpu, false, change)
}
