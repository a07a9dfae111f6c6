//! `nvidia-smi --gpu-reset`, as far as it is simulated. It lies in `usr/bin` below the directory of its machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use super::{Failure, change, open};
use crate::{state, sys};

#[derive(Parser)]
#[command(name = "nvidia-smi", about = "Resets GPUs of a simulated machine")]
struct Cli {
    /// Reset the GPUs
    #[arg(short = 'r', long, required = true)]
    gpu_reset: bool,
    /// The GPUs, by their indexes or PCI addresses
    #[arg(short, long, value_delimiter = ',', required = true)]
    id: Vec<String>,
}

pub fn main() -> ExitCode {
    sys::end_with_reader();
    match reset(&Cli::parse().id) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("Resetting a GPU is not supported here.");
            ExitCode::from(3)
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Says whether the machine can reset its GPUs.
fn reset(ids: &[String]) -> Result<bool, Failure> {
    let dir = machine_dir()?;
    let machine = open(&dir)?.load()?;
    if machine.no_reset {
        return Ok(false);
    }
    let mut gpus = BTreeSet::new();
    for id in ids {
        let is_it = |(index, address): &(usize, String)| {
            index.to_string() == *id || id.to_lowercase().ends_with(address)
        };
        let all = machine.gpus.iter().map(|gpu| gpu.pci_address()).enumerate();
        let found = { all }.find(is_it).ok_or("No devices were found")?;
        gpus.insert(found);
    }
    for (index, address) in &gpus {
        let refused = format!(
            "The following GPUs could not be reset:\n  GPU 0000{address}: In use by another client"
        );
        if has_client(&dir)? {
            return Err(refused.into());
        }
        let gpu = *index as u32;
        change(&dir, Some(gpu), |machine, holds| {
            machine.reset_gpu(gpu, holds).map_err(|_| refused.into())
        })?;
        println!("GPU 0000{address} was successfully reset.");
    }
    println!("All done.");
    Ok(true)
}

fn machine_dir() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    let dir = program.ancestors().nth(3).ok_or("no machine")?;
    Ok(dir.to_owned())
}

/// Whether a process has a session with the machine's driver.
fn has_client(dir: &Path) -> Result<bool, Failure> {
    let file = dir.join(state::SESSION);
    let is_it = |fd: fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|link| link == file);
    let mut processes = fs::read_dir("/proc")?.flatten();
    Ok(processes.any(|process| {
        let fds = fs::read_dir(process.path().join("fd"));
        fds.is_ok_and(|fds| fds.flatten().any(is_it))
    }))
}
