//! The programs of the Multi-Process Service: `nvidia-cuda-mps-control` as a user's tool and as a
//! daemon, and the server that the daemon starts from the same file.

mod client;
mod commands;
mod control;
mod daemon;
mod log;
mod pipes;
mod server;
mod state;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use client::kernel_end;

use nvml_sim::state::Store;

use crate::protocol::DEFAULT_PIPES;

/// The name under which the daemon starts its server.
const SERVER_NAME: &str = "nvidia-cuda-mps-server";
const NO_DAEMON: &str = "Cannot find MPS control daemon process";

/// What the command line asks for.
enum Asked {
    Daemon,
    Help,
    Commands,
}

/// Runs the program whose name is the process's first argument.
pub fn main() -> ExitCode {
    let mut args = std::env::args();
    let name = args.next().unwrap_or_default();
    if Path::new(&name).ends_with(SERVER_NAME) {
        return server::main();
    }
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: impl Iterator<Item = String>) -> io::Result<()> {
    let store = Store::open(&machine_dir()?)?;
    let branch = store.load()?.driver.branch();
    let asked = parse(args, branch)?;
    let pipes = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY");
    let pipes = pipes.map_or_else(|| DEFAULT_PIPES.into(), PathBuf::from);
    if !matches!(asked, Asked::Daemon) {
        nvml_sim::sys::end_with_reader();
    }
    match asked {
        Asked::Help => print!("{}", help(branch)),
        Asked::Daemon => daemon::run(store, &pipes)?,
        Asked::Commands => control::run(&pipes)?,
    }
    Ok(())
}

/// Returns the machine in whose `usr/bin` this program is.
fn machine_dir() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let dir = program.ancestors().nth(3);
    let missing = || format!("cannot find a machine above {}", program.display());
    let dir = dir.ok_or_else(|| io::Error::other(missing()))?;
    Ok(dir.to_owned())
}

fn parse(args: impl Iterator<Item = String>, branch: u32) -> io::Result<Asked> {
    let mut asked = Asked::Commands;
    for arg in args {
        match arg.as_str() {
            "-f" => asked = Asked::Daemon,
            "-h" => asked = Asked::Help,
            "-M" if (551..615).contains(&branch) => {}
            "-m" if branch >= 615 => {}
            // A program that does not know an option is no daemon and looks for one.
            _ => return Err(io::Error::other(NO_DAEMON)),
        }
    }
    Ok(asked)
}

/// Returns the help text. Only the names of the options are NVIDIA's.
fn help(branch: u32) -> String {
    let multiuser = match branch {
        ..551 => "",
        551..615 => "  -M,--multiuser-server  serve clients of all users at once\n",
        615.. => "  -m,--multiuser         serve clients of all users at once\n",
    };
    format!(
        "usage: nvidia-cuda-mps-control [options]\n\
         \x20 -f                     start the control daemon in the foreground\n\
         \x20 -h                     print this text\n\
         {multiuser}\
         Without -f: send the commands on standard input to the daemon.\n"
    )
}
