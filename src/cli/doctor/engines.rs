//! The engines that call runmig: their version, changes that `migctl configure` would make, and a start before the last
//! change.

use super::check::Check;
use super::finding::Finding;
use super::host::Host;
use crate::cli::configure::{self, Engine, Registration};
use crate::cli::processes;
use clap::ValueEnum;
use runmig_lease::process;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub const CHECKS: &[Check] = &[
    Check::new(
        "engines.containerd",
        REGISTERED,
        "migctl configure containerd",
    ),
    Check::new("engines.crio", REGISTERED, "migctl configure crio"),
    Check::new("engines.podman", REGISTERED, "migctl configure podman"),
    Check::new("engines.docker", REGISTERED, "migctl configure docker"),
];

const REGISTERED: &str =
    "the engine calls this runmig, and has started since its configuration changed";

pub fn findings(host: &Host) -> Vec<Finding> {
    let engines = Engine::value_variants().iter();
    engines.map(|engine| one(*engine, host)).collect()
}

fn one(engine: Engine, host: &Host) -> Finding {
    let (name, id) = (engine.name(), id(engine));
    match configure::registration(engine, &host.folder, Path::new("/")) {
        Err(e) => Finding::warned(id, &e),
        Ok(Registration::NoEngine) => Finding::skip(id, format!("{name} is not installed")),
        Ok(Registration::No { version }) => Finding::skip(
            id,
            format!("runmig is not registered with {version}; for that: migctl configure {name}"),
        ),
        Ok(Registration::Stale { version, files }) => Finding::warn(
            id,
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
                id,
                format!("{version} has run since before {} changed", file.display()),
                restart,
            ),
            _ => Finding::ok(id, format!("runmig is registered with {version}")),
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
    SystemTime::now().checked_sub(process::age(*pid)?)
}

fn id(engine: Engine) -> &'static str {
    match engine {
        Engine::Containerd => "engines.containerd",
        Engine::Crio => "engines.crio",
        Engine::Podman => "engines.podman",
        Engine::Docker => "engines.docker",
    }
}
