//! The hook, in the surroundings that an engine gives it: no environment, another folder, nothing on standard input, and the
//! engine's own mounts.

use super::check::Check;
use super::command::{self, Surroundings};
use super::finding::Finding;
use super::host::Host;
use super::programs;
use crate::cli::configure::{self, Engine, Registration};
use crate::cli::processes;
use clap::ValueEnum;
use runmig_lease::programs::HOOK;
use std::path::{Path, PathBuf};

pub const CHECKS: &[Check] = &[
    Check::new(
        "hooks.runs",
        "runmig-hook runs as a low-level runtime starts it",
        "install runmig again",
    ),
    Check::new(
        "hooks.seen",
        "each engine that calls runmig finds runmig-hook among its mounts",
        "let the unit or the container of the engine show the folder",
    ),
];

pub fn findings(host: &Host) -> Vec<Finding> {
    let mut findings = vec![runs(host)];
    findings.extend(seen(host));
    findings
}

fn runs(host: &Host) -> Finding {
    const ID: &str = "hooks.runs";
    let hook = match programs::runnable(&host.folder, HOOK) {
        Ok(hook) => hook,
        Err(why) => return Finding::skip(ID, why),
    };
    match command::output(&hook, &["--version"], &Surroundings::Only(&[])) {
        Ok(_) => Finding::ok(
            ID,
            format!("{} runs without an environment", hook.display()),
        ),
        Err(e) => Finding::failed(ID, &e),
    }
}

/// Looks through the mounts of each engine that calls runmig. It may be in a container, or its unit may hide folders.
fn seen(host: &Host) -> Vec<Finding> {
    const ID: &str = "hooks.seen";
    let hook = host.folder.join(HOOK);
    let running = processes::commands();
    let of = |engine: &Engine| {
        let (pid, name) = { running.iter() }.find(|(_, name)| engine.process() == Some(name))?;
        match configure::registration(*engine, &host.folder, Path::new("/")) {
            Ok(Registration::Yes { .. } | Registration::Stale { .. }) => {}
            Ok(Registration::No { .. } | Registration::NoEngine) | Err(_) => return None,
        }
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        if let Err(e) = root.read_dir() {
            let text = format!("cannot read the mounts of {name} (process {pid}): {e}");
            return Some(Finding::skip(ID, text));
        }
        let inside = root.join(hook.strip_prefix("/").unwrap_or(&hook));
        Some(match inside.is_file() {
            true => Finding::ok(
                ID,
                format!("{name} (process {pid}) finds {}", hook.display()),
            ),
            false => Finding::fail(
                ID,
                format!(
                    "{name} (process {pid}) has mounts of its own, without {}",
                    hook.display()
                ),
                format!("let its unit or container show the folder: systemctl cat {name}"),
            ),
        })
    };
    let findings: Vec<Finding> = { Engine::value_variants().iter() }.filter_map(of).collect();
    match findings.is_empty() {
        true => vec![Finding::skip(
            ID,
            "no engine that calls runmig runs as a server here",
        )],
        false => findings,
    }
}
