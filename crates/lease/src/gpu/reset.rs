//! Resets GPUs by `nvidia-smi`, since NVML has no call for it.

use crate::error::{Context, Error, Result};
use crate::process::program::{self, shown};
use crate::trust;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const NAME: &str = "nvidia-smi";

/// The time for which a reset is tried again: creates and monitoring have sessions with the driver, of a moment each.
const PATIENCE: Duration = Duration::from_secs(10);
const GAP: Duration = Duration::from_millis(250);

/// The time for a reset. One takes seconds, and a machine with NVSwitches resets them too.
const TIME: Duration = Duration::from_secs(120);

/// Resets the GPUs with these PCI addresses. All sessions with the driver have to be closed.
///
/// # Errors
/// There is no `nvidia-smi` that only root can change, or it refuses: something uses a GPU.
pub(crate) fn reset(driver_root: &Path, addresses: &[&str]) -> Result<()> {
    let program = find(driver_root)?;
    let begun = Instant::now();
    loop {
        match once(&program, addresses) {
            Err(_) if begun.elapsed() < PATIENCE => std::thread::sleep(GAP),
            other => return other,
        }
    }
}

fn once(program: &Path, addresses: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.env_clear();
    command.args(["--gpu-reset", "-i", &addresses.join(",")]);
    let what = || format!("run {} --gpu-reset", program.display());
    let answer = program::run(command, "", Instant::now() + TIME).context(what)?;
    let answer = answer.map_err(Error::new).context(what)?;
    match answer.status.success() {
        true => Ok(()),
        false => Err(Error::new(shown(&answer))).context(what),
    }
}

fn find(driver_root: &Path) -> Result<PathBuf> {
    // Not the machine's own where the driver has another root: it would reset other GPUs.
    let program = driver_root.join("usr/bin").join(NAME);
    if !program.exists() {
        return Err(Error::new(format!("there is no {}", program.display())));
    }
    let (path, _) = trust::program(&program).context(|| format!("use {}", program.display()))?;
    Ok(path)
}
