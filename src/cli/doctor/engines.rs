//! The engines that call runmig: their version, changes that `migctl configure` would make, and a start before the last
//! change.

use super::finding::Finding;
use super::host::Host;
use super::processes;
use crate::cli::configure::{self, Engine, Registration};
use clap::ValueEnum;
use runmig_lease::files;
use runmig_lease::process;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const MAX_UPTIME: u64 = 64;

pub fn findings(host: &Host) -> Vec<Finding> {
    let engines = Engine::value_variants().iter();
    engines.map(|engine| one(*engine, host)).collect()
}

fn one(engine: Engine, host: &Host) -> Finding {
    let name = engine.name();
    match configure::registration(engine, &host.folder, Path::new("/")) {
        Err(e) => Finding::warned(name, &e),
        Ok(Registration::NoEngine) => Finding::skip(name, format!("{name} is not installed")),
        Ok(Registration::No { version }) => Finding::skip(
            name,
            format!("runmig is not registered with {version}; for that: migctl configure {name}"),
        ),
        Ok(Registration::Stale { version, files }) => Finding::warn(
            name,
            format!(
                "the registration with {version} is not that of this runmig: {}",
                shown(&files)
            ),
            format!("migctl configure {name}"),
        ),
        Ok(Registration::Yes {
            version,
            files,
            restart,
        }) => match (restart, older(engine, &files)) {
            (Some(restart), Some(file)) => Finding::warn(
                name,
                format!("{version} has run since before {} changed", file.display()),
                restart,
            ),
            _ => Finding::ok(name, format!("runmig is registered with {version}")),
        },
    }
}

fn shown(files: &[PathBuf]) -> String {
    let files: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    files.join(", ")
}

/// Returns a file that changed after the engine's process began.
fn older(engine: Engine, files: &[PathBuf]) -> Option<PathBuf> {
    let began = began(engine.process()?)?;
    let is_newer = |file: &&PathBuf| {
        let changed = file.metadata().and_then(|meta| meta.modified());
        changed.is_ok_and(|changed| changed > began)
    };
    files.iter().find(is_newer).cloned()
}

/// Returns the time at which the process with this command name began.
fn began(command: &str) -> Option<SystemTime> {
    let all = processes::commands();
    let (pid, _) = all.iter().find(|(_, name)| name == command)?;
    let ticks = process::of(*pid)?.start_time;
    let uptime = files::read_text(Path::new("/proc/uptime"), MAX_UPTIME).ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    // The kernel counts in hundredths of a second for programs, whatever its own clock is.
    let age = uptime - Duration::from_millis(ticks * 10).as_secs_f64();
    SystemTime::now().checked_sub(Duration::from_secs_f64(age.max(0.0)))
}
